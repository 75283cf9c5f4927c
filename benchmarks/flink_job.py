"""Runs in PyFlink's virtual environment: loads a topic for each line of standard input and prints the seconds it took."""

import json
import sys
import time

from pyflink.common import Configuration
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.table import StreamTableEnvironment

# The narrow table of benchmarks.tables in Flink's SQL.
COLUMNS = {
    "name": ("STRING", "CONCAT('name of ', CAST(id AS STRING))"),
    "amount": ("BIGINT", "id * 7"),
    "city": ("STRING", "CONCAT('city ', CAST(MOD(id, 1000) AS STRING))"),
    "day": ("BIGINT", "MOD(id, 31)"),
    "share": ("DOUBLE", "CAST(id AS DOUBLE) / 8"),
}


def main(servers: str, jar: str) -> None:
    configuration = Configuration()
    for name, value in {
        "pipeline.jars": f"file://{jar}",
        "execution.checkpointing.interval": "10 s",
        "taskmanager.memory.network.max": "128m",
    }.items():
        configuration.set_string(name, value)
    environment = StreamExecutionEnvironment.get_execution_environment(configuration)
    environment.set_parallelism(2)
    tables = StreamTableEnvironment.create(environment)
    for number, line in enumerate(sys.stdin):
        order = json.loads(line)
        print("seconds", load(tables, servers, order, number), flush=True)


def load(tables: StreamTableEnvironment, servers: str, order: dict, number: int) -> float:
    columns = ", ".join(f"`{name}` {kind}" for name, (kind, _) in COLUMNS.items())
    options = {
        "connector": "upsert-kafka",
        "topic": order["topic"],
        "properties.bootstrap.servers": servers,
        "key.format": "json",
        "value.format": "json",
        "sink.delivery-guarantee": order["guarantee"],
        "sink.transactional-id-prefix": order["topic"],
        "properties.transaction.timeout.ms": "600000",
        "properties.linger.ms": "20",
        "properties.batch.size": "262144",
        "properties.compression.type": "lz4",
    }
    having = ", ".join(f"'{name}'='{value}'" for name, value in options.items())
    tables.execute_sql(
        f"CREATE TEMPORARY TABLE ids_{number} (id BIGINT) WITH ("
        f"'connector'='datagen', 'fields.id.kind'='sequence', 'fields.id.start'='0', 'fields.id.end'='{order['rows'] - 1}', "
        "'rows-per-second'='1000000000')"
    )
    tables.execute_sql(
        f"CREATE TEMPORARY TABLE topic_{number} (id BIGINT NOT NULL, {columns}, PRIMARY KEY (id) NOT ENFORCED) WITH ({having})"
    )
    start = time.perf_counter()
    picked = ", ".join(expression for _, expression in COLUMNS.values())
    tables.execute_sql(f"INSERT INTO topic_{number} SELECT id, {picked} FROM ids_{number}").wait()
    return time.perf_counter() - start


if __name__ == "__main__":
    main(*sys.argv[1:])
