"""The `kafka_source` materialization: a topic as a relation."""
