"""Random sequences of runs: after each run the topic is equal to the table, and only the minimal change was written."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tests.property_tests import NIGHTLY
from tests.tables import Table, json_key, json_value

COLUMNS = "id int, name string, gone boolean"
State = dict[int, str]


@dataclass(frozen=True)
class Step:
    """One run: the rows of its SELECT, the keys that delete_when deletes, and the options."""

    rows: State
    deleted: frozenset[int]
    update_mode: str
    slice: bool
    ignore_retraction: bool
    full_refresh: bool

    def options(self) -> dict[str, Any]:
        return {
            "delete_when": "gone",
            "exclude_columns": ["gone"],
            "allow_empty": True,
            "update_mode": self.update_mode,
            "missing_keys": "keep" if self.slice else "delete",
            "sink_ignore_retraction": self.ignore_retraction,
            "full_refresh": self.full_refresh,
        }

    def expect(self, topic: State) -> tuple[State, int]:
        """The table after the run, and how many messages the run writes."""
        upserts = {key: name for key, name in self.rows.items() if key not in self.deleted}
        if self.update_mode == "append" and not self.full_refresh:
            # Rows that differ would be refused; `run_and_check` removes them.
            new = {key: name for key, name in upserts.items() if key not in topic}
            return {**new, **topic}, len(new)
        missing = set() if self.slice and not self.full_refresh else set(topic) - set(self.rows)
        deletes = set() if self.ignore_retraction else (missing | (self.deleted & set(self.rows))) & set(topic)
        changed = [key for key, name in upserts.items() if key in topic and topic[key] != name]
        same = [key for key, name in upserts.items() if topic.get(key) == name]
        inserted = [key for key in upserts if key not in topic]
        nulls = len(changed) if self.update_mode == "retract" and not self.ignore_retraction else 0
        messages = len(inserted) + len(changed) + nulls + len(deletes) + (len(same) if self.full_refresh else 0)
        return {key: name for key, name in {**topic, **upserts}.items() if key not in deletes}, messages


STATES = st.dictionaries(st.integers(0, 7), st.sampled_from(["a", "b", "ü"]), max_size=8)
STEPS = st.builds(
    Step,
    rows=STATES,
    deleted=st.frozensets(st.integers(0, 7), max_size=2),
    update_mode=st.sampled_from(["upsert", "upsert", "retract", "append"]),
    slice=st.booleans(),
    ignore_retraction=st.sampled_from([False, False, True]),
    full_refresh=st.sampled_from([False, False, True]),
)


@pytest.fixture
def new_table(spark: SparkSession, broker: str, topic_name: str, schema_name: str) -> Any:
    number = iter(range(1000))
    return lambda: Table(spark, broker, f"{topic_name}-{next(number)}", schema_name)


@pytest.mark.nightly
@settings(
    max_examples=40 if NIGHTLY else 5,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=st.lists(STEPS, min_size=2, max_size=5))
def test_random_runs_make_topic_equal_to_table_with_fewest_messages(new_table: Any, steps: list[Step]) -> None:
    run_and_check(new_table(), steps)


def run_and_check(table: Table, steps: list[Step]) -> None:
    """Run the steps, and check the topic after each."""
    expected: State = {}
    for drawn in steps:
        rows = dict(drawn.rows)
        if drawn.update_mode == "append" and not drawn.full_refresh:
            rows = {key: expected.get(key, name) for key, name in rows.items()}
        step = replace(drawn, rows=rows)
        before = table.end() if expected or table.published else {}
        table.publish([(key, name, key in step.deleted) for key, name in rows.items()], COLUMNS, **step.options())
        expected, messages = step.expect(expected)
        assert table.latest() == {json_key(key): json_value((key, name)) for key, name in expected.items()}
        assert sum(table.end().values()) - sum(before.values()) == messages
