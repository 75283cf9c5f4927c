"""Clients of Kafka and the schema registry: their settings, the login, and the requests that they send."""
