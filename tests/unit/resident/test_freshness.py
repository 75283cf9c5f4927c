"""When the resident's imports are outdated."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from dbt.adapters.upsert_kafka.resident import freshness, protocol
from dbt.adapters.upsert_kafka.resident.freshness import Freshness


def request(**environment: str) -> dict[str, Any]:
    found = {**freshness.start_variables(os.environ), **environment}
    return {"version": protocol.VERSION, "python": [sys.executable, sys.version], "environment": found}


def test_same_process_is_fresh() -> None:
    assert Freshness().problem(request(DBT_ANYTHING="1", TZ="UTC")) is None


def test_another_python_or_start_variable_is_named() -> None:
    fresh = Freshness()
    assert fresh.problem({**request(), "python": ["other", sys.version]}) == "Python has changed"
    assert fresh.problem({**request(), "version": 0}) == "dbt-upsert-kafka has another version"
    assert fresh.problem(request(PYTHONHASHSEED="17")) == "PYTHONHASHSEED changed"


def test_installed_package_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freshness, "_package_folders", lambda: [str(tmp_path)])
    fresh = Freshness()
    (tmp_path / "notes.txt").touch()
    assert fresh.problem(request()) is None
    (tmp_path / "example-1.0.dist-info").mkdir()
    assert fresh.problem(request()) == "the installed packages have changed"


def test_edited_source_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "edited_module.py"
    source.touch()
    monkeypatch.setitem(sys.modules, "edited_module", type(sys)("edited_module"))
    sys.modules["edited_module"].__file__ = str(source)
    fresh = Freshness()
    os.utime(source, (1, 1))
    assert fresh.problem(request()) == "imported modules have changed"
