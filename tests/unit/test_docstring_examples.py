"""Examples in docstrings give what they show."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

from dbt.adapters import upsert_kafka

MODULES = [module.name for module in pkgutil.walk_packages(upsert_kafka.__path__, f"{upsert_kafka.__name__}.")]


@pytest.mark.parametrize("name", [name for name in MODULES if not name.endswith("__main__")])
def test_examples_of_a_module_give_what_they_show(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert failed == 0
