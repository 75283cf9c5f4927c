"""Links in the documentation lead to files and headings that exist, and troubleshooting.md quotes messages as they are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(
    (ROOT / "docs").rglob("*.md")
)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
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


def test_troubleshooting_quotes_messages_as_they_are() -> None:
    source = "\n".join(path.read_text() for path in (ROOT / "dbt" / "adapters").rglob("*.py"))
    # A message may be several literals, and its values are expressions.
    joined = re.sub(r"[\"']\s*\n\s*f?r?[\"']", "", source)
    messages = re.sub(r"\{[^{}\n]*\}", "", joined)
    rows = re.findall(r"^\| `([^`]+)`", (ROOT / "docs" / "troubleshooting.md").read_text(), re.MULTILINE)
    assert len(rows) > 20
    words = {row: [part.strip() for part in re.split(r"…|\b\d+\b|WRITE|\(id\)", row) if part.strip()] for row in rows}
    assert [row for row, parts in words.items() if not all(part in messages or part in joined for part in parts)] == []
