"""Which models `upsert-kafka stream` runs, and which sources dbt has to create for them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dbt.adapters.upsert_kafka.continuous.models import selected
from dbt.adapters.upsert_kafka.errors import UpsertKafkaError


class Config(dict[str, Any]):
    @property
    def materialized(self) -> str:
        return str(self["materialized"])


def _node(name: str, *parents: str, **config: str) -> Any:
    depends = SimpleNamespace(nodes=list(parents))
    return SimpleNamespace(name=name, resource_type="model", config=Config(config), depends_on=depends, fqn=["shop", name])


NODES = {
    "views": _node("views", materialized="kafka_source"),
    "users": _node("users", materialized="table"),
    "pass": _node("pass", "views", materialized="upsert_kafka", trigger="available-now"),
    "live": _node("live", "views", "users", materialized="upsert_kafka", trigger="continuous"),
}


def test_continuous_models_and_their_kafka_sources() -> None:
    found = selected(NODES, NODES)
    assert (found.models, [node.name for node in found.nodes]) == (["live"], ["views", "live"])


def test_selection_without_a_continuous_model_names_those_that_exist() -> None:
    with pytest.raises(UpsertKafkaError, match=r"no model with trigger='continuous'\. Continuous models of this project: live"):
        selected(NODES, ["pass"])
    with pytest.raises(UpsertKafkaError, match="This project has none"):
        selected({"views": NODES["views"]}, ["views"])


def test_project_that_dbt_cannot_read_is_reported_in_one_line(tmp_path: Path) -> None:
    command = ("stream", "--project-dir", str(tmp_path), "--profiles-dir", str(tmp_path))
    (tmp_path / "dbt_project.yml").write_text("name: shop\nprofile: missing\n")
    (tmp_path / "profiles.yml").write_text("shop: {target: dev, outputs: {dev: {type: upsert_kafka, schema: shop}}}\n")
    done = subprocess.run(
        [sys.executable, "-m", "dbt.adapters.upsert_kafka", *command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert "Could not find profile named 'missing'" in line
