"""Rows as events: each run appends the SELECT's rows to the topic, as the materialization `kafka` does by default.

Leaves to `publish` the runs that compare with the topic (update modes, change events), and shares its steps.
"""

from __future__ import annotations

from dataclasses import dataclass

from dbt.adapters.events.logging import AdapterLogger
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dbt.adapters.upsert_kafka import contracts, publish, topics
from dbt.adapters.upsert_kafka.errors import GuardError
from dbt.adapters.upsert_kafka.held import hold, until_done
from dbt.adapters.upsert_kafka.publish import Delivered, Request
from dbt.adapters.upsert_kafka.records import KEY, NULL_KEY, PARTITION, VALUE, extras, size
from dbt.adapters.upsert_kafka.tally import Tally

logger = AdapterLogger("upsert_kafka")


@dataclass
class Appended(Delivered):
    """What dbt prints at the end of a model's line and keeps in run_results.json."""

    topic: str = ""
    appended: int = 0
    dropped: int = 0
    """Rows without a key, left out by on_null_key='drop'."""


@until_done()
def append(spark: SparkSession, rows: DataFrame, request: Request) -> Appended:
    """Append `rows` to the topic, and show all of its records as the relation.

    The rows are computed before the first is written: a SELECT that fails appends nothing, where the next run would append twice.
    """
    topics.check_name(request.topic)
    layout = publish.layout_of(rows, request)
    partitioner = publish.partitioner_of(request)
    if request.mode == "check":
        publish.expose(spark, layout, request)
        return Appended(_message="checked, nothing appended", topic=request.topic)
    seen = Tally()
    broken = contracts.NullCount(request.not_null)
    encoded = seen.of(
        layout.encode(broken.watch(rows), request.options),
        F.count_if(~F.col(NULL_KEY)).alias("rows"),
        F.count_if(NULL_KEY).alias("nulls"),
        F.max(size()).alias("largest"),
    )
    computed = hold(encoded.where(~F.col(NULL_KEY)).select(KEY, VALUE, *extras(encoded)))
    count, nulls = seen.found["rows"], seen.found["nulls"]
    if broken.reasons():
        raise GuardError("\n".join(f"{request.model}: {reason}" for reason in broken.reasons()) + "\nNothing was written.")
    if nulls and request.options.on_null_key != "drop":
        raise GuardError(
            f"{request.model}: {nulls} rows have NULL in a column of unique_key ({', '.join(request.options.unique_key)}); "
            "set on_null_key='drop' to leave them out. Nothing was written."
        )
    if request.mode == "preview":
        return Appended(_message=f"dry run, nothing appended: +{count}", topic=request.topic, appended=count, dropped=nulls)
    with request.kafka.admin() as admin:
        topic = topics.describe(admin, request.topic)
        publish.check_size(admin, topic, seen.found["largest"] or 0, request)
        made = topic is None
        if topic is None:
            topic = topics.create(admin, request.topic, request.wanted)
        else:
            for difference in topics.differences(topic, request.wanted):
                logger.warning(f"{request.model}: {difference}")
        topics.check_rights(topic, "WRITE")
    delivery = None
    if count:
        unplaced = computed.withColumn(PARTITION, F.lit(None).cast("int"))
        delivery = publish.deliver(unplaced, partitioner, topic, request, count)
    publish.expose(spark, layout, request, made, topic, delivery)
    delivered = publish.described(delivery) if delivery else {}
    return Appended(_message=f"+{count}", rows_affected=count, topic=request.topic, appended=count, dropped=nulls, **delivered)
