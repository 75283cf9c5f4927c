"""What is remembered about each topic: one record per topic in a compacted topic on the same cluster, the state topic.

`record` is the format, `trust` decides which of its fields still describe the live topic, `store` reads and writes records,
`ownership` decides who may publish, `lease` who publishes continuously now, and `keeper` renews leases. Nothing
here knows Spark or dbt.
"""
