"""A resident dbt for development: `upsert-kafka dbt run` is dbt in a process that has everything imported, on a warm Spark.

    client     the command itself: sends the arguments and its terminal to the resident, waits for the exit code
    protocol   messages with file descriptors over Unix sockets
    process    the start of the resident: one process per project, single-threaded
    server     what it does: forks a child for each command, and keeps what outlives a command
    desk       which child may use, start or replace the JVM that the children share
    freshness  whether the resident's imports are those that a new process would have
    child      a forked child becomes an ordinary dbt process; the child that cleans up after it
    link       what a child asks and reports to the resident
    command    the help of `upsert-kafka dbt`

`spark.shared_jvm` has the child's part of sharing a JVM. Importing this package imports none of them.
"""
