"""`upsert-kafka plan` and `apply`: what a run would send, as files for people and programs, and a run that sends exactly that.

`run` drives dbt, `current` connects its adapter with the command, `document` is the plan, `markdown` and `html` show it. Leaves
to `publish` what is computed: a plan is its preview, an apply is a run with the plan's fingerprint.
"""
