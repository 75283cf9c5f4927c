"""What is reported when Spark starts."""

from __future__ import annotations

from typing import Any

import pyspark
import pytest

from dbt.adapters.upsert_kafka.spark import session


class StopError(Exception):
    """Ends the start after the versions were looked at."""


@pytest.mark.parametrize(("java", "pyspark_version", "warnings"), [("17", "4.0.0", 0), ("24", "4.0.0", 1), ("24", "4.3.0", 1)])
def test_versions_that_were_not_tested_are_one_warning(
    monkeypatch: pytest.MonkeyPatch, java: str, pyspark_version: str, warnings: int
) -> None:
    logged: list[str] = []

    def stop(_: Any) -> None:
        raise StopError

    monkeypatch.setattr(session.java, "major_version", lambda: java)
    monkeypatch.setattr(pyspark, "__version__", pyspark_version)
    monkeypatch.setattr(session.logger, "warning", logged.append)
    monkeypatch.setattr(session, "export_secrets", stop)
    credentials: Any = None
    with pytest.raises(StopError):
        session._start(credentials)
    assert [("was not tested" in line, "\n" in line) for line in logged] == [(True, False)] * warnings
