"""Table properties of the helper tables."""

from __future__ import annotations

from dbt.adapters.upsert_kafka.catalog import properties


def test_values_are_hexadecimal_because_spark_redacts_words_like_token() -> None:
    assert properties.listed({"upsert_kafka.key_layout": "token"}) == "'upsert_kafka.key_layout' = '746f6b656e'"
