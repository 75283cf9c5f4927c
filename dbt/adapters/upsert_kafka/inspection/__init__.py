"""What the topics of a project contain, for people: the commands `upsert-kafka topic`, `topics` and `describe`.

Reads Kafka with kafka-python and decodes with fastavro, independently of Spark. Writes nothing.
"""
