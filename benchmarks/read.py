"""Reading a topic through a kafka_source against bare Spark's read and decode of the same topic, in one process.

`python -m benchmarks.read [records]` starts a broker of its own, fills a topic of four partitions and prints the medians of
several alternating rounds and their ratios. Compare only figures of one run.
"""

from __future__ import annotations

import sys
from statistics import median

from pyspark.sql import DataFrame, SparkSession

from benchmarks.measured import run, session
from dbt.adapters.upsert_kafka import options, source, views
from dbt.adapters.upsert_kafka.kafka_clients import KafkaSettings
from dbt.adapters.upsert_kafka.relation import UpsertKafkaRelation
from tests.services import Cluster

TOPIC, ROUNDS, WARM_UP = "benchmark.read", 5, 2
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
    """Run the source, which reads nothing, and name its relation."""
    parsed = options.parse("kafka_source", "read", {"topic": TOPIC})
    relation = UpsertKafkaRelation.create(schema="default", identifier="benchmark_read")
    layout = source.layout(spark, "read", parsed, {name: {"name": name, "data_type": type_} for name, type_ in COLUMNS.items()})
    sql = f"SELECT {', '.join(COLUMNS)} FROM {source.query(parsed, layout, views.name(relation.topic_table))}"
    source.expose(spark, sql, layout, source.Request("read", parsed, kafka, relation))
    return views.name(relation)


def main(records: int) -> None:
    with Cluster() as cluster:
        kafka = KafkaSettings(cluster.bootstrap_servers)
        with kafka.admin() as admin:
            admin.create_topics({TOPIC: {"num_partitions": 4, "replication_factor": 1}}, wait_for_metadata=True)
        spark = session()
        fill(spark, kafka, records)
        view = expose_source(spark, kafka)
        contenders = {"bare Spark": lambda: bare(spark, kafka), "kafka_source": lambda: spark.table(view)}
        rounds = [{name: run(spark, frame()) for name, frame in contenders.items()} for _ in range(WARM_UP + ROUNDS)][WARM_UP:]
        print(
            f"{records} records, medians of {ROUNDS} rounds; ratio to bare Spark by the clock, and of the tasks' processor time"
        )
        medians = {
            name: [median(column) for column in zip(*(taken[name] for taken in rounds), strict=True)] for name in contenders
        }
        for name, (clock, processor) in medians.items():
            ratios = [ours / plain for ours, plain in zip((clock, processor), medians["bare Spark"], strict=True)]
            print(f"  {name:13s} {clock:6.2f} s {processor:6.2f} s   {ratios[0]:.2f} {ratios[1]:.2f}")
        spark.stop()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
