"""Where a variable of this adapter has an effect, and that text is not truth."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dbt.adapters.upsert_kafka.errors import OptionsError
from dbt.adapters.upsert_kafka.operations import adapter, commit_group_offsets
from dbt.adapters.upsert_kafka.options.variables import is_dry_run, problems


@pytest.mark.parametrize("written", [{"upsert_kafka_dry_run": True}, {"shop": {"upsert_kafka_dry_run": True}, "shpo": {"a": 1}}])
def test_variables_that_dbt_reads_are_accepted(written: dict[str, Any]) -> None:
    assert problems(written, {"upsert_kafka_dry_run": "false"}, ["shop", "utils"]) == []


@pytest.mark.parametrize(
    "place",
    [("shpo",), ("dbt_upsert_kafka",), ("shop", "marts"), ("models", "shop")],
)
def test_variable_that_dbt_ignores_is_refused(place: tuple[str, ...]) -> None:
    written: dict[str, Any] = {"upsert_kafka_dry_run": True}
    for name in reversed(place):
        written = {name: written}
    [problem] = problems(written, {}, ["shop", "utils"])
    assert problem == (
        f"variable upsert_kafka_dry_run below {'.'.join(place)}: has no effect there; "
        "set it directly below vars, or below shop or utils"
    )


def test_package_in_command_line_is_refused() -> None:
    [problem] = problems({}, {"shop": {"upsert_kafka_dry_run": True}}, ["shop"])
    assert problem == "variable upsert_kafka_dry_run below shop: has no effect there; set it directly in --vars"


def test_wrong_value_is_one_error() -> None:
    with pytest.raises(OptionsError, match=r"variable upsert_kafka_dry_run='ture': must be true or false"):
        is_dry_run("ture")


@pytest.mark.parametrize(("value", "publishes"), [("false", True), (False, True), ("true", False), (True, False)])
def test_hook_commits_unless_the_variable_is_true(monkeypatch: pytest.MonkeyPatch, value: Any, publishes: bool) -> None:
    committed: list[bool] = []
    monkeypatch.setattr(commit_group_offsets, "commit", lambda *arguments: committed.append(arguments[2]))
    command: Any = SimpleNamespace(config=SimpleNamespace(args=None), _group_source=None)
    adapter.OperationsAdapter.commit_group_offsets(command, [], {"nodes": {}}, value)
    assert committed == [publishes]
