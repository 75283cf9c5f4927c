"""The examples in docstrings of publish/ and of what it uses for messages and offsets."""

from __future__ import annotations

import doctest
from types import ModuleType

import pytest

from dbt.adapters.upsert_kafka import errors, sinks
from dbt.adapters.upsert_kafka.publish import kinds, snapshot_log


@pytest.mark.parametrize("module", [errors, sinks, kinds, snapshot_log], ids=lambda module: module.__name__)
def test_examples_in_docstrings_are_right(module: ModuleType) -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0
