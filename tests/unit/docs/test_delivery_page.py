"""docs/delivery.md: each fault has a test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[2]
PAGE = TESTS.parent / "docs" / "delivery.md"
SECTION = PAGE.read_text().partition("\n## Faults\n")[2].partition("\n## ")[0]
ROWS = [line.strip("| ").split(" | ") for line in SECTION.splitlines() if line.startswith("| ")][1:]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_fault_names_tests_that_exist(row: list[str]) -> None:
    fault, _, proof = row
    named = re.findall(r"`([a-z_/]+\.py)::(test_[a-z0-9_]+)`", proof)
    for file, function in named:
        assert f"\ndef {function}(" in (TESTS / file).read_text(), (fault, file, function)
    assert proof.count(".py") == len(named), f"{fault}: name the test function"
    assert named or re.search(r"\bsimulator\b|^none: ", proof), f"{fault}: no test, and no reason why there is none"


def test_page_names_tests_of_other_sections_that_exist() -> None:
    assert all((TESTS / name).exists() for name in re.findall(r"`([a-z]+/test_[a-z_]+\.py)`", PAGE.read_text()))
    assert len(ROWS) > 20
