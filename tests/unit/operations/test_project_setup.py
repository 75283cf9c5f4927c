"""The lines that `dbt init` adds to a dbt_project.yml of any shape."""

from __future__ import annotations

import pytest
import yaml

from dbt.adapters.upsert_kafka.operations.project_setup import with_lines

SETTINGS = {"+json_encode_decimal_as_plain_number": True, "+json_timestamp_format_standard": "ISO-8601"}


@pytest.mark.parametrize(
    "project",
    [
        "name: shop\n",
        "name: shop\nmodels:\n  shop:\n    +materialized: table\n",
        "models:  # of the shop\n    # four spaces\n    shop:\n        +materialized: table\nseeds: {}\n",
        "models: {shop: {+materialized: table}}  # flow\nname: shop\n",
        "models: {}\n",
        "models: {\n  shop: {+materialized: table},\n}\n",
        "models:\nname: shop\nseeds:\n    shop: {}\n",
        "name: shop\r\nmodels:\r\n  shop: {}\r\n",
    ],
)
def test_settings_are_added_to_the_models_of_the_project(project: str) -> None:
    changed = with_lines(project)
    assert changed is not None
    assert len([line for line in changed.splitlines() if line.startswith("models:")]) == 1
    before = yaml.safe_load(project)
    assert yaml.safe_load(changed) == {**before, "models": {**(before.get("models") or {}), **SETTINGS}}


@pytest.mark.parametrize("project", ["models: &all\n  shop: {}\n", "'models':\n  shop: {}\n", "models: null\n"])
def test_project_of_another_shape_is_left_as_it_is(project: str) -> None:
    assert with_lines(project) is None
