"""docs/cli.md is generated from the current commands."""

from __future__ import annotations

import runpy

from tests.documented import DOCS


def test_cli_page_is_up_to_date() -> None:
    render = runpy.run_path(str(DOCS / "cli_page.py"))["render"]
    assert (DOCS / "cli.md").read_text() == render(), "run: python docs/cli_page.py"
