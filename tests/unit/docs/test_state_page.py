"""docs/state.md: the tests that it names exist."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.documented import DOCS

TESTS = DOCS.parent / "tests"
# `tests/faults/test_kills.py::test_a`, `test_state.py::test_b`, `test_state.py`, and `::test_c` of the file before.
NAMED = re.compile(r"`((?:[\w/]*test_\w+\.py)?)(?:::(\w+))?`")


def named(page: str) -> Iterator[tuple[str, str | None]]:
    file = ""
    for path, test in NAMED.findall(page):
        file = path or file
        if path or test:
            yield file, test or None


def exists(file: str, test: str | None) -> bool:
    paths = [DOCS.parent / file] if "/" in file else [*TESTS.rglob(file)]
    sources = [path.read_text() for path in paths if path.is_file()]
    return any(test is None or re.search(rf"^ *def {test}\(", source, re.MULTILINE) for source in sources)


def test_tests_exist() -> None:
    found = list(named((DOCS / "state.md").read_text()))
    assert len(found) > 60
    assert [one for one in found if not exists(*one)] == []
