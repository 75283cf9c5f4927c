"""Splitting and quoting of SQL text, without a Spark. tests/spark/test_sql.py runs the quoted text in one."""

from __future__ import annotations

import pytest

from dbt.adapters.upsert_kafka.sql import quote_identifier, quote_literal, split_statements

STATEMENTS = {
    "select 1": ["select 1"],
    "select 1;": ["select 1"],
    "set a=1; select ';' as x": ["set a=1", "select ';' as x"],
    r"select 'it\'s; fine'; select 2 -- ;": [r"select 'it\'s; fine'", "select 2 -- ;"],
    "select `a;b` /* ; */ from t;\n-- end;\n": ["select `a;b` /* ; */ from t"],
    'select ";"': ['select ";"'],
}


@pytest.mark.parametrize("text", STATEMENTS)
def test_statements_end_at_semicolons_outside_of_literals_names_and_comments(text: str) -> None:
    assert split_statements(text) == STATEMENTS[text]


def test_quotes_are_escaped() -> None:
    assert quote_identifier("a`b.c") == "`a``b.c`"
    assert quote_literal("a'b\\") == "'a\\'b\\\\'"
    assert "$" not in quote_literal("${env:HOME}")
