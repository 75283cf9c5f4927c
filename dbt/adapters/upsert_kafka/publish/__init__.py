"""The `upsert_kafka` and `kafka` materializations: from a SELECT to messages of a topic.

Read `pipeline` first, then the modules in this order:

- `request`: what goes into a run, and what dbt gets back.
- `encode`, `schema_changes`, `contracts`: the rows and their layout as records.
- `compare`: the choice of how to compare; `kinds`, `difference` and `changes` compare; `scan` reads the topic.
- `snapshots`, with `digest`, `buckets` and `snapshot_log`: how large tables are compared without reading the topic.
- `guards`, `preview`: what is refused, and what a dry run logs.
- `deliver`, `change_events`, `expose`: records, messages, view.
- `append`: the pipeline of `kafka` models that only add events.
"""
