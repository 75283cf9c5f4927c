"""Tables of the commands: on a terminal, and in a pipe."""

from __future__ import annotations

import pytest

from dbt.adapters.upsert_kafka.inspection import show

ROWS = [["0", '{"id":1}', "[not markup] {}"], ["1", '{"id":2}', "(tombstone)"]]


@pytest.mark.parametrize("is_terminal", [True, False])
def test_table_shows_every_cell_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_terminal: bool
) -> None:
    monkeypatch.setattr(show, "is_terminal", lambda: is_terminal)
    monkeypatch.setenv("COLUMNS", "80")
    show.table(("offset", "key", "value"), ROWS)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines] == [["offset", "key", "value"], *(" ".join(row).split() for row in ROWS)]
    assert len({line.index(text) for line, text in zip(lines, ("key", '{"id":1}', '{"id":2}'), strict=True)}) == 1
