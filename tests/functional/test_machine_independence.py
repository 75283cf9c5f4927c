"""The same project publishes the same bytes on every machine: time zone, locale and character set do not reach them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.dbt_project import Project
from tests.services import read_topic
from tests.tables import Table

SEED = "id,at\n1,2026-07-01 12:30:00\n"
EVENTS = """{{ config(materialized='upsert_kafka', unique_key='id') }}
select id, cast(at as timestamp) as at, date_format(at, 'EEEE d MMMM HH:mm') as text, hour(cast(at as timestamp)) as hour,
  upper('title') as title, cast(timestamp'2026-01-01 00:00:00' as date) as day, encode('ä', 'utf-8') as bytes,
  to_csv(struct(cast(at as timestamp) as at)) as line, cast(1234.5 as double) as amount, 'Zürich 東京' as city
from {{ ref('raw') }}"""
IN_PYTHON = """
import datetime
from pyspark.sql import functions as F

def model(dbt, session):
    dbt.config(materialized="upsert_kafka", unique_key="id")
    rows = session.createDataFrame([(1, datetime.datetime(2026, 7, 1, 12, 30))], "id int, at timestamp")
    return rows.withColumn("hour", F.udf(lambda at: at.hour, "int")("at"))
"""
VALUE = (
    '{"id":1,"at":"2026-07-01 12:30:00Z","text":"Wednesday 1 July 12:30","hour":12,"title":"TITLE","day":"2026-01-01",'
    '"bytes":"w6Q=","line":"2026-07-01T12:30:00.000Z","amount":1234.5,"city":"Zürich 東京"}'
)
PYTHON_VALUE = b'{"id":1,"at":"2026-07-01 12:30:00Z","hour":12}'
LOCALES = {
    "tr_TR.ISO-8859-9": "-Duser.language=tr -Duser.country=TR -Dfile.encoding=ISO-8859-9",
    "C.UTF-8": "-Duser.language=en -Dfile.encoding=US-ASCII",
}


@pytest.mark.parametrize(
    ("zone", "locale"),
    [
        ("Asia/Kolkata", "tr_TR.ISO-8859-9"),
        pytest.param("America/St_Johns", "C.UTF-8", marks=pytest.mark.nightly),
        pytest.param("UTC", "tr_TR.ISO-8859-9", marks=pytest.mark.nightly),
    ],
)
def test_bytes_do_not_depend_on_the_machine(
    dbt_project: Callable[..., Project],
    broker: str,
    schema_name: str,
    zone: str,
    locale: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {"TZ": zone, "LC_ALL": locale, "LANG": locale, "JAVA_TOOL_OPTIONS": LOCALES[locale]}.items():
        monkeypatch.setenv(name, value)
    files = {"seeds/raw.csv": SEED, "models/events.sql": EVENTS, "models/in_python.py": IN_PYTHON}
    dbt_project(files).succeed("build", new_process=True)
    [event] = read_topic(broker, f"{schema_name}.events")
    assert event.value == VALUE.encode()
    [from_python] = read_topic(broker, f"{schema_name}.in_python")
    assert from_python.value == PYTHON_VALUE


def test_rows_that_change_with_the_time_zone_are_announced_before_they_are_published(table: Table, warnings: list[str]) -> None:
    table.publish([(1, "08:00")], time_zone="Europe/Berlin")
    table.publish([(1, "08:00")], time_zone="UTC")
    assert warnings == [], "no row changes"
    table.publish([(1, "08:00")], time_zone="Europe/Berlin")
    table.publish([(1, "07:00")], time_zone="UTC")
    [warning] = warnings
    assert "the last run used the session time zone Europe/Berlin, this run uses UTC. 1 row changes" in warning
    assert "Set `spark: {spark.sql.session.timeZone: Europe/Berlin}` in the profile" in warning
