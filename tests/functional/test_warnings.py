"""Warnings are dbt's: its flags make errors of them, and such an error leaves the topic as it was."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dbt.adapters.upsert_kafka.dbt_warnings import warn_after_write
from dbt.adapters.upsert_kafka.errors import WarningError
from tests.dbt_project import Project
from tests.services import end_offsets, list_topics
from tests.tables import Table

MODEL = """{{{{ config(materialized='{kind}', unique_key='id', on_null_key='drop'{more}) }}}}
select nullif(id, 9) as id, '{name}' as name from (select explode(array({rows})) as id)"""


def test_warning_that_is_an_error_writes_nothing(dbt_project: Callable[..., Project], broker: str, schema_name: str) -> None:
    def model(rows: str, name: str = "a", kind: str = "upsert_kafka", more: str = "") -> dict[str, str]:
        return {"models/users.sql": MODEL.format(rows=rows, name=name, kind=kind, more=more)}

    topic = f"{schema_name}.users"
    project = dbt_project(model("1, 2, 9"))
    with project.one_process():
        first = project.run("--warn-error", "run")
        assert first.exit_code == 1
        assert "on_null_key='drop' left out 1 row" in first.message("users")
        assert "Nothing was written" in first.message("users")
        assert topic not in list_topics(broker), "a topic that was created is not untouched"

        published = project.succeed("run")
        assert "on_null_key='drop' left out 1 row" in published.output
        before = end_offsets(broker, topic)

        project.write(model("1, 9", "b", more=", partitions=7"))
        for flags in (["--warn-error"], ["--warn-error-options", "{'error': ['AdapterEventWarning']}"]):
            refused = project.run(*flags, "run")
            assert refused.exit_code == 1
            assert "the model asks for 7" in refused.message("users")
            assert end_offsets(broker, topic) == before
        silent = project.succeed("--warn-error-options", "{'silence': ['AdapterEventWarning']}", "run")
        assert "the model asks for 7" not in silent.output
        assert (silent.response("users")["updated"], silent.response("users")["deleted"]) == (1, 1)


def test_warning_about_the_state_topic_comes_before_the_topic_is_created(table: Table, warn_error: list[str]) -> None:
    table.publish([(1, "ann")])
    old, table.topic = table.topic, f"{table.topic}.new"
    with pytest.raises(WarningError, match=f"Its former topic '{old}' is left as it is"):
        table.publish([(1, "ann")])
    assert table.topic not in list_topics(table.broker)


def test_warning_about_a_tombstone_comes_before_it_is_appended(table: Table, warn_error: list[str]) -> None:
    table.materialization = "kafka"
    raw = {"value_format": "raw", "key_format": "raw", "value_fields_include": "EXCEPT_KEY"}
    config = {"topic_config": {"cleanup.policy": "compact"}, **raw}
    with pytest.raises(WarningError, match="1 row has a key and NULL as the value"):
        table.publish([("a", "x"), ("b", None)], "id string, name string", **config)
    assert table.topic not in list_topics(table.broker)


def test_what_is_found_out_after_the_write_is_no_error(warn_error: list[str]) -> None:
    warn_after_write("model users: published, but the state record could not be written")
