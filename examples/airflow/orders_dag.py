"""An Airflow DAG that runs each dbt command of examples/containers in a new container, with plain operators.

Needs Airflow 2.9 or newer with apache-airflow-providers-docker, and the image of examples/containers/Dockerfile. Nothing is
passed from task to task: what a command needs to know about the one before is in Kafka.
"""

from __future__ import annotations

import datetime as dt
import os

from airflow import DAG
from airflow.providers.docker.operators.docker import DockerOperator

COMMANDS = {"run": "run", "test": "test", "docs": "docs generate"}
"""Arguments of dbt, which is the entry point of the image."""

with DAG(
    "orders",
    schedule="@hourly",
    start_date=dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    catchup=False,
    # Two runs of the project at once would compare with topics that change.
    max_active_runs=1,
) as dag:
    tasks = {
        task_id: DockerOperator(
            task_id=task_id,
            image=os.environ.get("DBT_IMAGE", "orders-dbt"),
            command=command,
            environment={"KAFKA_BOOTSTRAP_SERVERS": os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "kafka:9092")},
            auto_remove="success",
            mount_tmp_dir=False,
            retries=1,
        )
        for task_id, command in COMMANDS.items()
    }
    tasks["run"] >> [tasks["test"], tasks["docs"]]
