"""Reading a topic through a kafka_source against bare Spark's read and decode of the same topic, in one process.

`python -m benchmarks.read [records]` starts a broker of its own, fills a topic of four partitions and prints the best of several
alternating rounds and their ratio. Compare only figures of one run.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

import pyspark
from pyspark.sql import DataFrame, SparkSession

from dbt.adapters.upsert_kafka import options, source, views
from dbt.adapters.upsert_kafka.java import fetch_jars
from dbt.adapters.upsert_kafka.kafka_clients import KafkaSettings
from dbt.adapters.upsert_kafka.relation import UpsertKafkaRelation
from dbt.adapters.upsert_kafka.session import INSIDE_SPARK, kafka_jars
from tests.services import Cluster

TOPIC, ROUNDS = "benchmark.read", 4
COLUMNS = {
    "id": "bigint",
    "name": "string",
    "price": "double",
    "active": "boolean",
    "at": "timestamp_ntz",
    "country": "string",
}


def session() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    jars = fetch_jars("spark-kafka", kafka_jars(pyspark.__version__), INSIDE_SPARK)
    builder = SparkSession.builder.master("local[2]").config("spark.jars", ",".join(map(str, jars)))
    settings = {"spark.ui.enabled": "false", "spark.driver.memory": "2g", "spark.sql.session.timeZone": "UTC"}
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def fill(spark: SparkSession, kafka: KafkaSettings, records: int) -> None:
    columns = ["id", "concat('name ', id) AS name", "id / 7 AS price", "id % 2 = 0 AS active"]
    rows = spark.range(records).selectExpr(*columns, "'2024-02-29 12:34:56.789' AS at", "'DE' AS country")
    values = rows.selectExpr("to_json(struct(*)) AS value", "CAST(id % 4 AS INT) AS partition")
    values.write.format("kafka").options(**kafka.spark_sink()).option("topic", TOPIC).save()


def bare(spark: SparkSession, kafka: KafkaSettings) -> DataFrame:
    schema = ", ".join(f"{name} {data_type}" for name, data_type in COLUMNS.items())
    read = spark.read.format("kafka").options(**kafka.spark_source()).option("subscribe", TOPIC).load()
    return read.selectExpr(f"from_json(CAST(value AS STRING), '{schema}') AS v").select("v.*")


def expose_source(spark: SparkSession, kafka: KafkaSettings) -> str:
    """Run the source, which reads nothing, and name its relation."""
    parsed = options.parse("kafka_source", "read", {"topic": TOPIC})
    relation = UpsertKafkaRelation.create(schema="default", identifier="benchmark_read")
    layout = source.layout(spark, "read", parsed, {name: {"name": name, "data_type": type_} for name, type_ in COLUMNS.items()})
    sql = f"SELECT {', '.join(COLUMNS)} FROM {source.query(parsed, layout, views.name(relation.topic_table))}"
    source.expose(spark, sql, layout, source.Request("read", parsed, kafka, relation))
    return views.name(relation)


def seconds(frame: Callable[[], DataFrame]) -> float:
    start = time.perf_counter()
    frame().write.format("noop").mode("overwrite").save()
    return time.perf_counter() - start


def main(records: int) -> None:
    with Cluster() as cluster:
        kafka = KafkaSettings(cluster.bootstrap_servers)
        with kafka.admin() as admin:
            admin.create_topics({TOPIC: {"num_partitions": 4, "replication_factor": 1}}, wait_for_metadata=True)
        spark = session()
        fill(spark, kafka, records)
        view = expose_source(spark, kafka)
        times = [(seconds(lambda: bare(spark, kafka)), seconds(lambda: spark.table(view))) for _ in range(ROUNDS)]
        plain, ours = (min(column) for column in zip(*times[1:], strict=True))
        print(f"{records} records, best of {ROUNDS - 1} warm rounds:")
        print(f"  bare Spark    {plain:6.2f} s  {records / plain:9,.0f} records/s")
        print(f"  kafka_source  {ours:6.2f} s  {records / ours:9,.0f} records/s")
        print(f"  ratio         {ours / plain:6.2f}")
        spark.stop()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
