"""The jobs that users write without this adapter, each a process of its own. Imports nothing of the adapter.

hand_written.py JARS generate FOLDER ROWS          the tables of `benchmarks.whole_commands`
hand_written.py JARS publish SERVERS PATH TOPIC    encode and write all rows
hand_written.py JARS check SERVERS TOPIC           is the id of each last record unique and not null?
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from pyspark.sql import SparkSession

COLUMNS = (
    "id, concat('name of ', id) AS name, id * 7 AS amount, concat('city ', id % 1000) AS city, id % 31 AS day, id / 8 AS share"
)
READ = {"kafka.max.poll.records": "20000", "kafka.max.partition.fetch.bytes": "16777216", "kafka.fetch.max.bytes": "67108864"}


def generate(spark: SparkSession, folder: str, rows: str) -> None:
    first = spark.sql(f"SELECT {COLUMNS} FROM range(0, {rows}, 1, 8)")
    first.write.parquet(f"{folder}/first-{rows}")
    first.selectExpr("* EXCEPT (share)", "share + CAST(id % 100 = 0 AS INT) AS share").write.parquet(f"{folder}/changed-{rows}")


def publish(spark: SparkSession, servers: str, path: str, topic: str) -> None:
    rows = spark.read.parquet(path).selectExpr("to_json(struct(id)) AS key", "to_json(struct(*)) AS value")
    sink = {"kafka.bootstrap.servers": servers, "kafka.compression.type": "lz4", "kafka.linger.ms": "50", "topic": topic}
    rows.write.format("kafka").options(**sink).save()


def check(spark: SparkSession, servers: str, topic: str) -> None:
    source = {"kafka.bootstrap.servers": servers, "subscribe": topic, **READ}
    last = spark.read.format("kafka").options(**source).load().groupBy("key").agg({"offset": "max"})
    records = spark.read.format("kafka").options(**source).load().join(last.withColumnRenamed("max(offset)", "last"), "key")
    ids = records.where("offset = last").selectExpr("from_json(CAST(value AS STRING), 'id BIGINT').id AS id")
    assert ids.where("id IS NULL").count() == 0
    assert ids.groupBy("id").count().where("count > 1").count() == 0


if __name__ == "__main__":
    session = (
        SparkSession.builder.config("spark.jars", sys.argv[1])
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "OFF")
        .config("spark.sql.shuffle.partitions", "16")
        .config("spark.driver.memory", "4g")
        .getOrCreate()
    )
    jobs: dict[str, Callable[..., None]] = {"generate": generate, "publish": publish, "check": check}
    jobs[sys.argv[2]](session, *sys.argv[3:])
