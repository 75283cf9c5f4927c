"""A Delta table as a stream: appended rows are published once; changed rows, lost positions and other tables are refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from typing import Any

import pytest

from tests.dbt_project import Outcome, Project
from tests.services import end_offsets, list_topics, read_topic

SQL = "{% macro sql(text) %}{% do run_query(text) %}{% endmacro %}"
PER_REGION = """
{{ config(materialized='upsert_kafka', unique_key='region', trigger='available-now', sink_delivery_guarantee='exactly-once') }}
select region, count(*) as pv from {{ stream(source('raw', 'events')) }} group by region"""
EACH = """
{{ config(materialized='kafka', trigger='available-now', sink_delivery_guarantee='exactly-once') }}
select user_id from {{ stream(source('raw', 'events')) }}"""
WINDOWS = """
{{ config(materialized='kafka', trigger='available-now', sink_delivery_guarantee='exactly-once') }}
select window.start as begin, count(*) as pv from {{ stream(source('raw', 'events')) }}
group by window(viewtime, '10 seconds')"""


class Lake:
    """A project with the Delta table `<schema>_raw.events` as a source."""

    def __init__(self, make: Callable[..., Project], broker: str, models: dict[str, str]) -> None:
        self.broker = broker
        files = {f"models/{name}.sql": text for name, text in models.items()}
        self.project = make({"macros/sql.sql": SQL, **files}, file_format="delta")
        self.schema = self.project.profile["schema"]
        self.table = f"{self.schema}_raw.events"
        self.declare({})

    def declare(self, meta: dict[str, Any]) -> None:
        """Write the source with settings."""
        table = {"name": "events", "config": {"meta": meta}}
        source = {"name": "raw", "schema": f"{self.schema}_raw", "tables": [table]}
        self.project.write({"models/sources.yml": json.dumps({"sources": [source]})})

    def create(self) -> None:
        self.sql(f"create schema if not exists {self.schema}_raw")
        self.sql(f"create or replace table {self.table} (user_id bigint, region string, viewtime timestamp_ntz) using delta")

    def sql(self, text: str) -> None:
        self.project.succeed("run-operation", "sql", "--args", json.dumps({"text": text}))

    def append(self, *rows: tuple[int, str, int]) -> None:
        """Append events: user, region, second."""
        values = ", ".join(f"({u}, '{r}', timestamp_ntz'2026-11-18 00:00:{s:02}')" for u, r, s in rows)
        self.sql(f"insert into {self.table} values {values}")

    def run(self, *arguments: str) -> Outcome:
        return self.project.run("run", *arguments)

    def end(self, model: str) -> dict[int, int]:
        return end_offsets(self.broker, f"{self.schema}.{model}")

    def counts(self) -> dict[str, int]:
        """The last value of each region, read by an independent client."""
        last = {record.key: record.value for record in read_topic(self.broker, f"{self.schema}.per_region")}
        rows = [json.loads(value) for value in last.values() if value is not None]
        return {row["region"]: row["pv"] for row in rows}

    def refused(self, model: str, *arguments: str) -> str:
        """The message of a run that is refused in one line and leaves the topic as it is."""
        end = self.end(model)
        message = self.run("--select", model, *arguments).message(model)
        assert self.end(model) == end
        [_, reason] = message.strip().splitlines()  # dbt's heading, and one line
        return reason


def test_rows_appended_to_a_delta_table_are_a_stream(dbt_project: Callable[..., Project], broker: str) -> None:
    lake = Lake(dbt_project, broker, {"per_region": PER_REGION, "each": EACH})
    project = lake.project
    with project.one_process():
        lake.create()
        lake.append((1, "a", 0), (2, "b", 1), (3, "a", 2))
        first = project.succeed("run")
        assert (first.response("per_region")["events"], first.response("each")["written"]) == (3, 3)
        assert lake.counts() == {"a": 2, "b": 1}
        lake.append((4, "b", 3))
        lake.append((5, "c", 4))
        second = project.succeed("run")
        assert (second.response("per_region")["events"], second.response("per_region")["written"]) == (2, 2)
        assert second.response("each")["written"] == 2
        assert lake.counts() == {"a": 2, "b": 2, "c": 1}

        # Other commands read the table itself.
        assert "stream_of__" not in project.succeed("compile", "--select", "per_region").output
        end = lake.end("per_region")
        project.succeed("run", "--empty", "--select", "per_region")
        assert lake.end("per_region") == end

        # The position in the table is in the checkpoint only, also of a stateless stream.
        shutil.rmtree(project.folder / ".upsert_kafka" / "checkpoints" / f"{lake.schema}.each")
        lost = lake.refused("each")
        assert f"the position in the Delta table {lake.table}" in lost and "--full-refresh" in lost

        lake.sql(f"update {lake.table} set region = 'z' where user_id = 1")
        lake.append((6, "c", 5))
        changed = lake.refused("per_region")
        assert f"rows of the Delta table {lake.table} were updated or deleted in version 4" in changed
        assert "--full-refresh" in changed and "skip_change_commits: true" in changed
        project.succeed("run", "--full-refresh", "--select", "per_region")
        assert lake.counts() == {"a": 1, "b": 2, "c": 2, "z": 1}


@pytest.mark.nightly
def test_watermarks_skipped_commits_and_other_tables(dbt_project: Callable[..., Project], broker: str) -> None:
    models = {"windows": WINDOWS, "plain": "select 1 as id", "dates": "{{ config(materialized='table', file_format='parquet') }}"}
    models["dates"] += " select 1 as user_id"
    models["of_dates"] = EACH.replace("source('raw', 'events')", "ref('dates')")
    lake = Lake(dbt_project, broker, models)
    project, topic = lake.project, f"{lake.schema}.windows"
    lake.declare({"watermark": {"viewtime": "2 seconds"}, "skip_change_commits": True})
    with project.one_process():
        lake.create()
        lake.append(*((1, "a", second) for second in range(25)))
        project.succeed("run", "--select", "windows")
        # The window from 20 to 30 is not final.
        assert [json.loads(record.value or b"")["pv"] for record in read_topic(broker, topic)] == [10, 10]
        lake.sql(f"delete from {lake.table} where viewtime < timestamp_ntz'2026-11-18 00:00:05'")
        lake.append((1, "a", 5), (1, "a", 45))  # the first is late
        project.succeed("run", "--select", "windows")
        assert [json.loads(record.value or b"")["pv"] for record in read_topic(broker, topic)] == [10, 10, 5]

        lake.sql(f"drop table {lake.table}")
        lake.create()
        lake.append((1, "a", 50))
        assert f"the id of the Delta table {lake.table} changed" in lake.refused("windows")
        lake.declare({"watermark": {"region": "2 seconds"}})
        assert "column region of the Delta table" in lake.refused("windows")

        project.succeed("run", "--select", "dates")
        assert "is a table of format parquet. Read it as a static table" in lake.run("--select", "of_dates").message("of_dates")
        days = "{{ config(materialized='incremental', incremental_strategy='append') }} select 1 as user_id"
        project.write({"models/days.sql": days, "models/of_days.sql": EACH.replace("source('raw', 'events')", "ref('days')")})
        for _ in range(2):
            assert project.succeed("run", "--select", "days", "of_days").response("of_days")["events"] == 1
        project.write({"models/of_dates.sql": EACH.replace("source('raw', 'events')", "ref('plain')")})
        assert "plain is a view. Read it as a static table" in lake.run("--select", "of_dates").message("of_dates")
        project.write({"models/of_dates.sql": EACH.replace("source('raw', 'events')", "ref('missing_table')")})
        project.write({"models/missing_table.sql": "{{ config(materialized='table') }} select 1 as user_id"})
        assert "can't read" in (missing := lake.run("--select", "of_dates").message("of_dates")) and "NOT_FOUND" in missing
        assert f"{lake.schema}.of_dates" not in list_topics(broker)
