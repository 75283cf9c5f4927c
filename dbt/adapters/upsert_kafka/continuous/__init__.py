"""The command `upsert-kafka stream`: runs the continuous models of a project in one Spark until it is stopped.

`command` has the options, `models` lets dbt prepare the models, `supervisor` keeps them running. Leaves to `streaming` what a
stream does.
"""
