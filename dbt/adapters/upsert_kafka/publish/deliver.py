"""Steps place and deliver: choose the partitions of new keys, and write with the guarantee that the model asks for.

Leaves to `sinks` how records are written.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kafka import KafkaAdminClient
from pyspark.sql import DataFrame, SparkSession

from dbt.adapters.upsert_kafka import progress
from dbt.adapters.upsert_kafka.errors import GuardError
from dbt.adapters.upsert_kafka.kafka_client import topics
from dbt.adapters.upsert_kafka.kafka_client.topics import Topic
from dbt.adapters.upsert_kafka.publish import consumed_groups, memory
from dbt.adapters.upsert_kafka.publish.request import Request
from dbt.adapters.upsert_kafka.sinks import NO_PLAN, Delivery, Sink, Target, TransactionPlan, partitioners
from dbt.adapters.upsert_kafka.sinks import spark as spark_sink
from dbt.adapters.upsert_kafka.sinks.partitioners import Partitioner
from dbt.adapters.upsert_kafka.sinks.spark import SparkSink
from dbt.adapters.upsert_kafka.state import lease, ownership

if TYPE_CHECKING:
    import pyarrow as pa

    from dbt.adapters.upsert_kafka.sinks.driver import DriverSink
    from dbt.adapters.upsert_kafka.sinks.transaction import TransactionSink

SPECULATION = "spark.speculation"
JAVA_PRODUCER = ("partitioner.class", "interceptor.classes")
"""Properties whose classes only Java's producer can load."""


def check_spark(spark: SparkSession, request: Request) -> None:
    """Refuse a Spark that runs a second copy of a slow task: both would write. Spark accepts the setting in any case.

    Readers would see records twice and old values after new ones, and a transaction would never be completed.

    Raises:
        GuardError: before anything is computed.
    """
    if request.mode == "publish" and (spark.conf.get(SPECULATION, None) or "").strip().lower() == "true":
        raise GuardError(
            f"model {request.model}: {SPECULATION} is true, so that two copies of a task may write the same records. "
            f"Nothing was written. Set {SPECULATION}: false in `spark` of the profile, or where this Spark is configured."
        )


def partitioner_of(request: Request) -> Partitioner:
    """The model's partitioner. A function of the user is imported here, so that a wrong name fails before anything is written."""
    return partitioners.load(request.options.sink_partitioner, request.options.sink_partitioner_class, request.folder)


def place(records: DataFrame, partitioner: Partitioner, topic: Topic) -> DataFrame:
    """Set the partition of new keys. A key that is in the topic stays in its partition."""
    return partitioners.place(records, partitioner, topic.partitions)


def check_size(admin: KafkaAdminClient, topic: Topic | None, largest: int, request: Request) -> None:
    """Refuse a message that is too large for the topic.

    Spark's sink checks sizes before compression, so they are known here; a transaction's batches are checked when they are
    compressed.

    Args:
        largest: bytes of the largest key and value together.
    """
    if not request.transactional_id and largest > spark_sink.MAX_REQUEST_SIZE // 2:
        allowed = topics.largest_message(admin, request.topic, None if topic else request.topic_settings)
        spark_sink.check_size(request.model, largest, allowed, request.kafka.properties)


def recover(admin: KafkaAdminClient, topic: Topic, request: Request) -> None:
    """Abort the transaction that a killed exactly-once run left open: readers see nothing behind it until it ends.

    Raises:
        GuardError: the topic has another owner, or its stream runs in another process. Their transactions must not be aborted.
    """
    known = memory.look(admin, topic, request)
    ownership.check_owner(request.owner, topic.name, known)
    lease.check(request.model, topic.name, known.stream)
    _transaction_sink().recover(_target(admin, topic, request))


def deliver(
    placed: DataFrame,
    messages: int,
    topic: Topic,
    admin: KafkaAdminClient,
    request: Request,
    plan: TransactionPlan = NO_PLAN,
) -> Delivery:
    """Write the records.

    Args:
        messages: how many records there are; Spark's sink does not count them.
        plan: what a transaction checks and contains besides the records.
    """
    options = request.options
    sink: Sink
    if request.transactional_id:
        sink = _transaction_sink(options.sink_parallelism)
    else:
        sink = SparkSink("none" if options.sink_delivery_guarantee == "none" else "at-least-once", options.sink_parallelism)
    plan = consumed_groups.with_groups(plan, admin, request)
    progress.step("write", messages)
    return replace(sink.deliver(placed, _target(admin, topic, request, plan)), records=messages)


def driver_sink(request: Request) -> DriverSink | None:
    """The sink for rows that this process has; None if Spark must write them."""
    if not request.transactional_id:
        # Spark's sink refuses a timestamp, also that of few rows.
        is_java = any(name in request.kafka.properties for name in JAVA_PRODUCER) or request.options.record_timestamp
        if is_java or request.options.sink_delivery_guarantee == "none":
            return None
    from dbt.adapters.upsert_kafka.sinks.driver import DriverSink

    return DriverSink()


def deliver_rows(
    sink: DriverSink, rows: pa.Table, topic: Topic, admin: KafkaAdminClient, request: Request, plan: TransactionPlan
) -> Delivery:
    """Write rows that this process has."""
    progress.step("write", rows.num_rows)
    return sink.deliver(rows, _target(admin, topic, request, consumed_groups.with_groups(plan, admin, request)))


def write_state(sink: DriverSink, topic: Topic, admin: KafkaAdminClient, request: Request, plan: TransactionPlan) -> None:
    """Write a state record in a transaction without rows: an older process that writes it late is fenced, or finds it changed."""
    sink.write_state(_target(admin, topic, request, plan))


def commit_groups(topic: Topic, admin: KafkaAdminClient, request: Request, plan: TransactionPlan) -> None:
    """Commit the consumer groups of a run that has nothing to write: it has read their messages."""
    if request.groups:
        plan = consumed_groups.with_groups(plan, admin, request)
        _transaction_sink().commit_groups(_target(admin, topic, request, plan))


def _target(admin: KafkaAdminClient, topic: Topic, request: Request, plan: TransactionPlan = NO_PLAN) -> Target:
    return Target(topic.name, topic.partitions, request.kafka, admin, request.transactional_id, plan, topic.id)


def _transaction_sink(parallelism: int | None = None) -> TransactionSink:
    # Imported late: pyarrow and numpy would slow down every dbt command that writes no transaction.
    from dbt.adapters.upsert_kafka.sinks.transaction import TransactionSink

    return TransactionSink(parallelism)
