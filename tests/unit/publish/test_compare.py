"""The seed of a run's hashes."""

from __future__ import annotations

from dbt.adapters.upsert_kafka.publish.compare import seed_of
from dbt.adapters.upsert_kafka.state.record import Log


def test_seed_of_the_record_is_used_with_its_digest() -> None:
    assert seed_of(Log({0: 0}, {0: 1}, 1, "[1]", 7)) == 7
    assert seed_of(Log({0: 0}, {0: 1}, 1, "[1]", 0)) == 0


def test_new_seed_is_drawn_if_there_is_nothing_to_compare_with() -> None:
    not_comparable = [None, Log({0: 0}, {0: 1}), Log({0: 0}, {0: 1}, 1, "[1]"), Log({0: 0}, {0: 1}, 1, None, 7)]
    seeds = {seed_of(last) for last in not_comparable * 2}
    assert len(seeds) == 8 and all(0 <= seed < 2**63 for seed in seeds)
