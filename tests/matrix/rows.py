"""The rows of docs/compatibility.md: which versions are tested together, and the tests that each row runs.

Every version is in at least two rows, with different versions of the rest: brokers too, because a row may have several.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Row:
    """One environment: an interpreter, packages, a Java and a broker."""

    python: str
    dbt: str
    """Minor version of dbt-core."""
    spark: str
    brokers: tuple[str, ...]
    """Versions of Apache Kafka. All tests run on the first one, `test_brokers` on all."""
    java: str = "17"
    oldest: bool = False
    """Install the oldest version of every dependency that pyproject.toml allows."""
    nightly: bool = False
    """Whether `make nightly` runs the row: those that differ most from the locked set."""
    packages: tuple[str, ...] = field(default=())
    """Further requirements."""

    @property
    def name(self) -> str:
        resolved = "-oldest" if self.oldest else ""
        return f"py{self.python}-dbt{self.dbt}-spark{self.spark}-java{self.java}{resolved}"


OLDEST_BROKER, NEWEST_BROKER = "2.8.2", "4.1.1"
EVERY_BROKER = (NEWEST_BROKER, "4.0.1", "3.9.1", "3.3.2", OLDEST_BROKER)

# dbt, Spark and Python: each value with two values of the others at least. A unit test counts the results.
ROWS = (
    Row("3.11", "1.10", "4.0.0", (OLDEST_BROKER, "4.0.1"), oldest=True, nightly=True),
    Row("3.13", "1.12", "4.2.1", ("3.9.1", "3.3.2"), java="21", nightly=True),
    Row("3.13", "1.12", "4.2.1", ("3.9.1",)),
    Row("3.12", "1.11", "4.1.1", EVERY_BROKER),
    Row("3.11", "1.12", "4.1.1", ("4.0.1", OLDEST_BROKER), java="21"),
    Row("3.12", "1.10", "4.2.0", ("3.3.2", NEWEST_BROKER)),
    Row("3.13", "1.11", "4.0.0", (NEWEST_BROKER, "3.9.1"), java="21"),
    Row("3.13", "1.12", "4.2.1", (NEWEST_BROKER,), java="25"),
)

# dbt commands in separate processes, both delivery guarantees, a Python model, the formats, a schema registry, sources, a
# snapshot table, a stream, the state topic, and the private parts of other libraries that the adapter uses.
CORE = (
    "tests/unit/test_dbt_internals.py",
    "tests/unit/kafka_client/test_internals.py",
    "tests/unit/spark/test_internals.py",
    "tests/functional/test_upsert_kafka.py::test_runs_and_tests_of_separate_processes_share_the_topic",
    "tests/functional/test_delivery.py::test_topic_equals_the_select_after_every_run[at-least-once]",
    "tests/functional/test_delivery.py::test_topic_equals_the_select_after_every_run[exactly-once]",
    "tests/functional/test_delivery.py::test_custom_partitioner_decides_for_new_keys",
    "tests/functional/test_formats.py::test_rows_that_flink_wrote_are_unchanged[json-nested-ALL]",
    "tests/functional/test_formats.py::test_rows_that_flink_wrote_are_unchanged[avro-nested-ALL]",
    "tests/functional/test_formats.py::test_rows_that_flink_wrote_are_unchanged[csv-composite_key_order-ALL]",
    "tests/functional/test_state_cases.py::test_change_events_delete_old_row_in_other_partition[debezium-json]",
    "tests/functional/test_registry.py::test_confluent_deserializer_reads_every_type_of_key_and_value",
    "tests/functional/test_machine_independence.py::test_bytes_do_not_depend_on_the_machine[Asia/Kolkata-tr_TR.ISO-8859-9]",
    "tests/functional/test_streams.py::test_second_run_reads_new_events_and_writes_touched_keys_only[exactly-once]",
    "tests/functional/test_kafka_source.py::test_relation_contains_the_records_of_the_slice",
    "tests/functional/test_kafka_source.py::test_cdc_source_returns_changes_or_with_unique_key_the_current_table[debezium]",
    "tests/functional/test_snapshots.py::test_changes_with_snapshot_equal_changes_without[exactly-once]",
    "tests/functional/test_state.py::test_record_describes_the_topic_after_each_run[exactly-once]",
    "tests/matrix/test_brokers.py",
)

# The registry that these results were made with lacks jars of newer versions of Spark. These are used in their place.
_TOKEN_PROVIDER = "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0"
_FOR_KAFKA = ("org.apache.kafka:kafka-clients:3.9.1", "org.apache.commons:commons-pool2:2.12.0", "org.tukaani:xz:1.10")
_AVRO = "org.apache.spark:spark-avro_2.13:4.1.1"
JARS = {
    "4.1.1": ("org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.1", _AVRO, _TOKEN_PROVIDER, *_FOR_KAFKA),
    "4.2.0": ("org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0", _AVRO, _TOKEN_PROVIDER, *_FOR_KAFKA),
    "4.2.1": ("org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0", _AVRO, _TOKEN_PROVIDER, *_FOR_KAFKA),
}
