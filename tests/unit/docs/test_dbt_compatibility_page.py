"""docs/dbt_compatibility.md is up to date, and every class of dbt's adapter suites is run or listed in not_run.py."""

from __future__ import annotations

import runpy
from pathlib import Path

DOCS = Path(__file__).resolve().parents[3] / "docs"


def test_every_class_of_the_adapter_suites_is_run_or_listed() -> None:
    assert runpy.run_path(str(DOCS / "dbt_compatibility_page.py"))["problems"]() == []


def test_dbt_compatibility_page_is_up_to_date() -> None:
    render = runpy.run_path(str(DOCS / "dbt_compatibility_page.py"))["render"]
    assert (DOCS / "dbt_compatibility.md").read_text() == render(), "run: python docs/dbt_compatibility_page.py"
