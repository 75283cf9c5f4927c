"""The plan of a model with a million changed keys: small files."""

from __future__ import annotations

from pathlib import Path

import pytest

from dbt.adapters.upsert_kafka.plan import files
from dbt.adapters.upsert_kafka.plan.document import ModelPlan, Plan
from dbt.adapters.upsert_kafka.publish.preview import Preview
from tests.tables import Table

ROWS = 1_000_000
SELECT = "SELECT CAST(id AS int) AS id, repeat(concat('{0} ', id, ' '), 20) AS name FROM range({1}, {2})"


@pytest.mark.nightly
def test_million_changed_keys_give_small_files(table: Table, tmp_path: Path) -> None:
    table.publish(SELECT.format("old", 0, ROWS))
    before = table.end()
    found: list[Preview] = []
    # Half of the keys are new, the other half are changed, and half a million are deleted.
    changed = SELECT.format("new", ROWS // 2, ROWS + ROWS // 2)
    table.publish(changed, mode="preview", samples=100, report=found.append)
    [preview] = found
    assert preview.messages == 3 * ROWS // 2
    assert len(preview.samples) == 300
    models = (ModelPlan.of("model.shop.users", "upsert_kafka", preview),)
    files.write(Plan("shop", "dev", "dev", "now", "1", models=models), tmp_path)
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert sizes["plan.html"] < 2_000_000 and sizes["plan.json"] < 2_000_000 and sizes["plan.md"] < 65_536, sizes
    assert table.end() == before
