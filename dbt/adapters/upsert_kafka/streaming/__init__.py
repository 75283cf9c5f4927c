"""Streams: models with a trigger, computed by Spark Structured Streaming and published batch by batch.

`pipeline` has the steps in order: read it first. A batch is encoded and delivered like a batch run, without the comparison. Under
exactly-once its data and its state record (query, batch, source offsets) are one Kafka transaction.
"""
