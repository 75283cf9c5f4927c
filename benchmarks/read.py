"""Reading a topic through a kafka_source, compared with reading and decoding it in Spark directly."""

from __future__ import annotations

import argparse
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.measured import Figure, figures, run, say, session
from dbt.adapters.upsert_kafka import options
from dbt.adapters.upsert_kafka.catalog import views
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.relation import UpsertKafkaRelation
from dbt.adapters.upsert_kafka.source import source
from tests.services import Cluster

TOPIC, WARM_UP = "benchmark.read", 2
BARE, OURS = "bare Spark", "kafka_source"
MOST = 1.1
COLUMNS = {
    "id": "bigint",
    "name": "string",
    "price": "double",
    "active": "boolean",
    "at": "timestamp_ntz",
    "country": "string",
}


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
    """Create the source's view, which reads nothing yet, and return its name."""
    parsed = options.parse("kafka_source", "read", {"topic": TOPIC})
    relation = UpsertKafkaRelation.create(schema="default", identifier="benchmark_read")
    layout = source.layout(spark, "read", parsed, {name: {"name": name, "data_type": type_} for name, type_ in COLUMNS.items()})
    sql = f"SELECT {', '.join(COLUMNS)} FROM {source.query(parsed, layout, views.name(relation.topic_table))}"
    source.expose(spark, sql, layout, source.Request("read", parsed, kafka, relation))
    return views.name(relation)


def measure(arguments: argparse.Namespace, folder: Path) -> list[Figure]:
    with Cluster() as cluster:
        kafka = KafkaSettings(cluster.bootstrap_servers)
        with kafka.admin() as admin:
            admin.create_topics({TOPIC: {"num_partitions": 4, "replication_factor": 1}}, wait_for_metadata=True)
        spark = session()
        fill(spark, kafka, arguments.rows)
        view = expose_source(spark, kafka)
        contenders = {BARE: lambda: bare(spark, kafka), OURS: lambda: spark.table(view)}
        taken = [{name: run(spark, frame()) for name, frame in contenders.items()} for _ in range(WARM_UP + arguments.rounds)][
            WARM_UP:
        ]
        spark.stop()
    found = []
    for label, pick in {"by the clock": 0, "in processor time": 1}.items():
        times = {name: [one[name][pick] for one in taken] for name in contenders}
        found += figures(f"read {arguments.rows:,} records, {label}", times, BARE, {OURS: MOST})
        say(f"  read {label}: {found[-1].ratio:.2f}x of bare Spark")
    return found
