"""The classes of dbt's adapter suites that do not run here, each with its reason. docs/dbt_compatibility.md lists them."""

from __future__ import annotations

ONE_DATABASE = "Spark has one database: a relation is `schema.name`"
NO_USERS = (
    "Spark's catalog knows no users to grant to. `grants` of upsert_kafka and kafka models are Kafka's ACLs, "
    "tested in tests/functional/test_grants.py"
)
NO_MATERIALIZED_VIEWS = "Spark has no materialized views; a topic of upsert_kafka is read through a view that is always current"
NO_FUNCTIONS = "functions as nodes of a project are not supported by dbt-spark"

REASONS = {
    "aliases.test_aliases.BaseSameAliasDifferentDatabases": ONE_DATABASE,
    "basic.test_get_catalog_for_single_relation.BaseGetCatalogForSingleRelation": (
        "an optional capability that dbt-spark does not have; the catalog is read by schema"
    ),
    "dbt_clone.test_dbt_clone.BaseCloneSameSourceAndTarget": f"{ONE_DATABASE}, and the suite's SQL names a database",
    "empty.test_empty.BaseTestEmptySeedFlag": "dbt-core 1.11 has no flag `--empty` for `dbt seed`",
    "utils.test_current_timestamp.BaseCurrentTimestampAware": (
        "one of two: Spark's timestamps reach Python without a time zone, so BaseCurrentTimestampNaive runs"
    ),
    "utils.test_escape_single_quotes.BaseEscapeSingleQuotesQuote": (
        "one of two: Spark escapes with a backslash, so BaseEscapeSingleQuotesBackslash runs"
    ),
}
# Folders of which no class runs.
FOLDERS = {"functions": NO_FUNCTIONS, "grants": NO_USERS, "materialized_view": NO_MATERIALIZED_VIEWS}


def reason(suite: str) -> str | None:
    """Why a class does not run, or None if it has to."""
    return REASONS.get(suite) or FOLDERS.get(suite.partition(".")[0])
