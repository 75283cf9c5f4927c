"""docs/dbt_compatibility.md lists what runs, and every class of dbt's suites runs or has its reason."""

from __future__ import annotations

import runpy
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_every_class_of_dbts_suites_runs_or_has_a_reason() -> None:
    assert runpy.run_path(str(DOCS / "dbt_compatibility_page.py"))["problems"]() == []


def test_page_of_compatibility_is_not_stale() -> None:
    render = runpy.run_path(str(DOCS / "dbt_compatibility_page.py"))["render"]
    assert (DOCS / "dbt_compatibility.md").read_text() == render(), "run: python docs/dbt_compatibility_page.py"
