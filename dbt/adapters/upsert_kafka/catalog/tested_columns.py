"""Which columns of a relation a test reads, for dbt's own tests: unique, not_null, accepted_values and relationships.

`expected` answers before a test is compiled, from dbt's graph; `read_by` from the SQL that runs. Other tests, a test with `where`
and a test whose macro the project replaces may read any column.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

RELATIONSHIPS = "relationships"
TESTS = ("unique", "not_null", "accepted_values", RELATIONSHIPS)
_NAME = re.compile(r"`?(\w+)`?")
_LITERAL = r"(?:'(?:[^'\\]|\\.)*'|-?\d[\d.]*)"
_NOT_IN = rf"select \* from all_values where value_field not in \( {_LITERAL}(?: ?, ?{_LITERAL})* \)"


def expected(tests: Iterable[Mapping[str, Any]], relation_id: str) -> frozenset[str] | None:
    """The columns, in lower case, that tests of the graph read from a node; None if they are not known.

    Args:
        relation_id: the unique_id of the node.
    """
    of_tests = [_expected(test, relation_id) for test in tests]
    return frozenset().union(*(columns for columns in of_tests if columns)) or None if all(of_tests) else None


def _expected(test: Mapping[str, Any], relation_id: str) -> frozenset[str] | None:
    metadata = test.get("test_metadata") or {}
    name = metadata.get("name")
    if metadata.get("namespace") or test["config"].get("where") or name not in TESTS:
        return None
    is_child, others = test.get("attached_node") == relation_id, set(test["depends_on"]["nodes"]) - {test.get("attached_node")}
    is_parent = name == RELATIONSHIPS and (relation_id in others or not others)
    texts = [test.get("column_name")] * is_child + [(metadata.get("kwargs") or {}).get("field")] * is_parent
    names = [_NAME.fullmatch(text or "") for text in texts]
    return frozenset(found[1].lower() for found in names if found) if all(names) else None


def read_by(sql: str, relation: str) -> frozenset[str] | None:
    """The columns, in lower case, that the SQL of a test reads from a relation; None if they are not known.

    >>> sorted(read_by("select id from a.orders\\nwhere id is null", "a.orders"))
    ['id']
    >>> read_by("select id from a.orders where name is null", "a.orders")
    """
    text = " ".join(sql.split()).lower()
    matches = (re.fullmatch(pattern, text) for pattern in _patterns(re.escape(relation.lower())))
    return frozenset(match["column"] for match in matches if match) or None


def _patterns(relation: str) -> list[str]:
    """Patterns of the SQL of dbt's tests, in lower case, with the group `column`. Two match a relationship to itself."""
    column, again = r"`?(?P<column>\w+)`?", r"`?(?P=column)`?"
    other, other_again, other_relation = r"`?(?P<other>\w+)`?", r"`?(?P=other)`?", r"[\w.`]+"
    counted = rf"count\(\*\) as n_records from {relation}"
    child = r"with child as \( select {} as from_field from {} where {} is not null \),"
    parent = (
        r"parent as \( select {} as to_field from {} \) select from_field from child left join parent "
        r"on child\.from_field = parent\.to_field where parent\.to_field is null"
    )
    return [
        rf"select {column} as unique_field, {counted} where {again} is not null group by {again} having count\(\*\) > 1",
        rf"select {column} from {relation} where {again} is null",
        rf"with all_values as \( select {column} as value_field, {counted} group by {again} \) {_NOT_IN}",
        f"{child.format(column, relation, again)} {parent.format(other, other_relation)}",
        f"{child.format(other, other_relation, other_again)} {parent.format(column, relation)}",
    ]
