"""How property tests draw their examples: a pytest plugin that selects a Hypothesis profile.

By default examples are derived from the test itself, so that every run draws the same ones. With UPSERT_KAFKA_NIGHTLY=1 every run
draws new examples from a seed that pytest prints in its header; `--hypothesis-seed=<seed>` draws the same examples again.
UPSERT_KAFKA_FUZZ sets the number of examples of tests that don't set their own; it implies UPSERT_KAFKA_NIGHTLY=1.
"""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

_EXAMPLES, _NIGHTLY_EXAMPLES = 100, 1000
_COMMON: dict[str, Any] = {"deadline": None, "suppress_health_check": list(HealthCheck), "database": None}

NIGHTLY = os.environ.get("UPSERT_KAFKA_NIGHTLY") == "1" or "UPSERT_KAFKA_FUZZ" in os.environ
EXAMPLES = int(os.environ.get("UPSERT_KAFKA_FUZZ", _NIGHTLY_EXAMPLES)) if NIGHTLY else _EXAMPLES

settings.register_profile("every run", max_examples=EXAMPLES, derandomize=True, **_COMMON)
settings.register_profile("nightly", max_examples=EXAMPLES, print_blob=True, **_COMMON)
settings.load_profile("nightly" if NIGHTLY else "every run")


# Before Hypothesis' own plugin reads the option. pytest-xdist passes the option on to its workers.
@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if NIGHTLY and config.getoption("hypothesis_seed") is None:
        config.option.hypothesis_seed = str(random.SystemRandom().randrange(2**32))


def pytest_report_header(config: pytest.Config) -> str | None:
    if not NIGHTLY:
        return None
    seed = config.getoption("hypothesis_seed")
    return f"property tests: {EXAMPLES} new examples, UPSERT_KAFKA_NIGHTLY=1 pytest --hypothesis-seed={seed} draws them again"
