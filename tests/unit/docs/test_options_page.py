"""docs/options.md is generated from the current option table."""

from __future__ import annotations

import runpy
from pathlib import Path

DOCS = Path(__file__).resolve().parents[3] / "docs"


def test_options_page_is_up_to_date() -> None:
    render = runpy.run_path(str(DOCS / "options_page.py"))["render"]
    assert (DOCS / "options.md").read_text() == render(), "run: python docs/options_page.py"
