"""Quoting and splitting of SQL text."""

from __future__ import annotations

import pytest

from dbt.adapters.upsert_kafka.sql import quote_identifier, quote_literal, split_statements

TEXTS = {
    "select 1": ["select 1"],
    "select 1;": ["select 1"],
    "set a=1; select ';' as x": ["set a=1", "select ';' as x"],
    r"select 'it\'s; fine'; select 2 -- ;": [r"select 'it\'s; fine'", "select 2 -- ;"],
    "select `a;b` /* ; */ from t;\n-- end;\n": ["select `a;b` /* ; */ from t"],
    'select ";"': ['select ";"'],
}


@pytest.mark.parametrize("text", TEXTS)
def test_statements_end_at_semicolons_outside_of_literals_names_and_comments(text: str) -> None:
    assert split_statements(text) == TEXTS[text]


def test_quotes_can_not_be_left() -> None:
    assert quote_identifier("a`b.c") == "`a``b.c`"
    assert quote_literal("a'b\\") == "'a\\'b\\\\'"
    assert "$" not in quote_literal("${env:HOME}")
