"""Runs in PyFlink's virtual environment: counts the events of each region continuously, until the process is killed."""

import json
import sys

from pyflink.common import Configuration
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.table import StreamTableEnvironment


def main(order: dict) -> None:
    configuration = Configuration()
    interval = f"{order['interval']} ms"
    settings = {
        "pipeline.jars": f"file://{order['jar']}",
        "execution.checkpointing.interval": interval,
        "execution.checkpointing.dir": f"file://{order['folder']}",
        "taskmanager.memory.network.max": "128m",
    }
    if order["mini_batch"]:
        settings |= {
            "table.exec.mini-batch.enabled": "true",
            "table.exec.mini-batch.allow-latency": interval,
            "table.exec.mini-batch.size": "100000",
        }
    for name, value in settings.items():
        configuration.set_string(name, value)
    environment = StreamExecutionEnvironment.get_execution_environment(configuration)
    environment.set_parallelism(2)
    tables = StreamTableEnvironment.create(environment)
    source = {
        "connector": "kafka",
        "topic": order["source"],
        "properties.bootstrap.servers": order["servers"],
        "scan.startup.mode": "earliest-offset",
        "format": "json",
    }
    sink = {
        "connector": "upsert-kafka",
        "topic": order["result"],
        "properties.bootstrap.servers": order["servers"],
        "key.format": "json",
        "value.format": "json",
        "sink.delivery-guarantee": order["guarantee"],
        "sink.transactional-id-prefix": order["result"],
        "properties.transaction.timeout.ms": "600000",
        "properties.compression.type": "lz4",
    }
    tables.execute_sql(f"CREATE TEMPORARY TABLE page_views (region STRING, user_id BIGINT) WITH ({_options(source)})")
    tables.execute_sql(
        f"CREATE TEMPORARY TABLE per_region (region STRING, pv BIGINT, PRIMARY KEY (region) NOT ENFORCED) WITH ({_options(sink)})"
    )
    job = tables.execute_sql("INSERT INTO per_region SELECT region, COUNT(*) FROM page_views GROUP BY region")
    print("started", flush=True)
    job.wait()


def _options(options: dict) -> str:
    return ", ".join(f"'{name}'='{value}'" for name, value in options.items())


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
