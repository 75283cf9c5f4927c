"""The examples of a documentation page as steps: files to write, commands to run, and the output that the page shows.

A page follows these rules. Leaves to its tests how a command is run.
- A code block below a paragraph that ends with `path`: is this file.
- A block `sh` has commands, one per line. A block `text` below it is their output, in which … stands for any text. Lines of the
  output may be left out. The last command fails if the output that is shown has the word ERROR.
- "In a second terminal" above a block `sh`: these commands run until the end of the page. "The second terminal" above a block
  `text`: what they have printed so far.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"
_BLOCK = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_PATH = re.compile(r"`([\w./-]+)`:$")
_TERMINAL = re.compile(r"\b(second|third) terminal\b")
# dbt prints the time at the start of a line, and dots between the name of a node and its result.
_TIME = re.compile(r"^\d\d:\d\d:\d\d\s+")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class File:
    """A file of the project."""

    path: str
    text: str


@dataclass(frozen=True)
class Commands:
    """Commands of a shell, and the output that the page shows, if any."""

    lines: tuple[str, ...]
    output: str | None = None
    terminal: str | None = None

    @property
    def fails(self) -> bool:
        return self.output is not None and re.search(r"ERROR(?!=0)", self.output) is not None


@dataclass(frozen=True)
class Printed:
    """What another terminal shows."""

    terminal: str
    output: str


Step = File | Commands | Printed


def steps(page: Path) -> list[Step]:
    """The steps of a page, in their order."""
    return steps_of(page.read_text())


def steps_of(text_of_page: str) -> list[Step]:
    found: list[Step] = []
    for before, language, text in blocks(text_of_page):
        path, terminal = _PATH.search(before), _TERMINAL.search(before)
        if path and language != "sh":
            found.append(File(path[1], text))
        elif language == "sh":
            found.append(Commands(tuple(commands(text)), terminal=terminal[1] if terminal else None))
        elif language == "text" and terminal:
            found.append(Printed(terminal[1], text))
        elif language == "text" and found and isinstance(found[-1], Printed) and not before:
            found.append(Printed(found[-1].terminal, text))
        elif language == "text" and found and isinstance(found[-1], Commands):
            found[-1] = replace(found[-1], output=text)
    return found


def blocks(page: str) -> Iterator[tuple[str, str, str]]:
    """The paragraph before each code block, the block's language and its text."""
    end = 0
    for block in _BLOCK.finditer(page):
        paragraph = page[end : block.start()].strip().rpartition("\n\n")[2]
        yield " ".join(paragraph.split()), block["language"], block["text"]
        end = block.end()


def commands(text: str) -> Iterator[str]:
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        command = re.sub(r"\s+# .*$", "", line).strip()
        if command and not command.startswith("#"):
            yield command


def missing(shown: str, printed: str) -> list[str]:
    """The lines of `shown` that do not follow one another in `printed`.

    >>> missing("… OK … [topic a: 2 new, … in …]", "08:00:01  1 of 1 OK created ... [topic a: 2 new, 0 changed in 1.2s]")
    []
    >>> missing("b\\na", "a\\nb")
    ['a']
    """
    lines = iter([_plain(line) for line in printed.splitlines()])
    return [
        line for line in map(_plain, shown.splitlines()) if line and line != "…" and not any(_fits(line, one) for one in lines)
    ]


def _plain(line: str) -> str:
    return re.sub(r"\s+", " ", _TIME.sub("", _COLOUR.sub("", line))).strip()


def _fits(shown: str, line: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, re.split(" ?… ?", shown))), line) is not None
