"""How many inputs: a few hundred of each kind with the other tests, 100,000 and more by `make fuzz`."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import HealthCheck, settings

MUCH = "UPSERT_KAFKA_FUZZ"
COMMON: dict[str, Any] = {"deadline": None, "suppress_health_check": list(HealthCheck), "database": None}

settings.register_profile("little", max_examples=100, derandomize=True, **COMMON)
settings.register_profile("much", max_examples=int(os.environ.get(MUCH, "1")), **COMMON)
settings.load_profile("much" if MUCH in os.environ else "little")
