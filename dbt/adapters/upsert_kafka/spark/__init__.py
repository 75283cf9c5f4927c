"""The Spark session and what is run on it that is not specific to topics."""
