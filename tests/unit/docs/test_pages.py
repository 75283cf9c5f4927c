"""Links in the documentation lead to files and headings that exist, the navigation has every page, every example of the guides
is run by a test, and troubleshooting.md quotes messages as they are.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.documented import DOCS, Commands, File, steps, steps_of

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(
    (ROOT / "docs").rglob("*.md")
)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in LINK.findall(page.read_text()):
        path, _, anchor = link.partition("#")
        target = page if not path else page.parent / path
        if "://" in link:
            continue
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def messages(source: str) -> Iterator[str]:
    """The string literals of a module without docstrings. … stands for the values of an f-string.

    >>> list(messages('"A docstring."\\nraise E(f"topic {name} " "has moved", key="orders")'))
    ['topic … has moved', 'orders']
    """
    tree = ast.parse(source)
    # The body of a class, function or module, where a literal is a docstring and no message.
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if id(node) in prose | parts:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)


def test_troubleshooting_quotes_messages_as_they_are() -> None:
    """The quote is in one message of the adapter. Its values (… and numbers) are values there too."""
    found = [message for path in (ROOT / "dbt" / "adapters").rglob("*.py") for message in messages(path.read_text())]
    rows = re.findall(r"^\| `([^`]+)`", (ROOT / "docs" / "troubleshooting.md").read_text(), re.MULTILINE)
    assert len(rows) > 50
    quotes = {row: ".*".join(map(re.escape, re.split(r"…|\b\d+\b|\(id\)", row))) for row in rows}
    assert [row for row, quote in quotes.items() if not any(re.search(quote, one, re.DOTALL) for one in found)] == []


def test_rows_of_tables_are_below_a_header() -> None:
    """A row after a blank line is shown as text, not as a part of the table above it."""
    lines = [(page.name, *pair) for page in PAGES for pair in pairwise(["", "", *page.read_text().splitlines()])]
    starts = [(name, after) for name, before, after in lines if after.startswith("|") and not before.startswith("|")]
    rules = [(name, before) for name, before, after in lines if re.fullmatch(r"\|[-:| ]+\|", after)]
    assert starts == rules


def entries(navigation: list[Any]) -> Iterator[str]:
    for item in navigation:
        [target] = item.values()
        if isinstance(target, str):
            yield target
        else:
            yield from entries(target)


def test_navigation_has_every_page_once() -> None:
    navigation = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    pages = [page.relative_to(DOCS).as_posix() for page in sorted(DOCS.rglob("*.md"))]
    assert sorted(entries(navigation)) == sorted(pages)


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: str(page.relative_to(DOCS)))
def test_links_of_the_site_stay_in_it(page: Path) -> None:
    links = [link.partition("#")[0] for link in LINK.findall(page.read_text()) if "://" not in link]
    assert [link for link in links if link and not (page.parent / link).resolve().is_relative_to(DOCS)] == []


@pytest.mark.parametrize("page", [DOCS / "tutorial.md", *sorted((DOCS / "how-to").glob("*.md"))], ids=lambda page: page.stem)
def test_every_example_is_run_by_a_test(page: Path) -> None:
    """Each code block is a file, commands or their output: see tests/documented.py."""
    outputs = [step for step in steps(page) if not isinstance(step, File) and step.output is not None]
    commands = [step for step in steps(page) if isinstance(step, Commands)]
    files = [step for step in steps(page) if isinstance(step, File)]
    assert len(re.findall(r"^ *```\w+$", page.read_text(), re.MULTILINE)) == len(files) + len(commands) + len(outputs)


def test_only_the_last_command_of_a_block_may_fail() -> None:
    [commands] = steps_of("```sh\ndbt seed\ndbt run \\\n  --full-refresh   # all rows\n```\n\n```text\n… ERROR …\n```\n")
    assert commands == Commands(("dbt seed", "dbt run --full-refresh"), "… ERROR …\n")
    assert isinstance(commands, Commands) and commands.fails
    [commands] = steps_of("```sh\ndbt run\n```\n\n```text\nDone. PASS=1 ERROR=0\n```\n")
    assert isinstance(commands, Commands) and not commands.fails
