"""docs/options.md is what the table says."""

from __future__ import annotations

import runpy
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_page_of_options_is_not_stale() -> None:
    render = runpy.run_path(str(DOCS / "options_page.py"))["render"]
    assert (DOCS / "options.md").read_text() == render(), "run: python docs/options_page.py"
