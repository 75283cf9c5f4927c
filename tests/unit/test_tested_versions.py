"""The versions in the package are those that `make matrix` tested."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

from dbt.adapters.upsert_kafka import tested_versions
from docs import compatibility_page
from tests.matrix.rows import EVERY_BROKER

ROOT = Path(__file__).resolve().parents[2]
PASSED = [row for row in compatibility_page.results() if not row["failed"]]
LOCKED = {"versions": compatibility_page.locked(), "java": "17"}


def series(text: str) -> str:
    return ".".join(text.split(".")[:2])


def test_page_has_the_results() -> None:
    assert compatibility_page.PAGE.read_text() == compatibility_page.page(), "run python docs/compatibility_page.py"


def test_tested_versions_are_those_that_passed() -> None:
    rows = [*PASSED, LOCKED]
    assert {series(row["versions"]["dbt-core"]) for row in rows} == set(tested_versions.DBT_CORE)
    assert {row["versions"]["pyspark"] for row in rows} == set(tested_versions.PYSPARK)
    assert {series(row["versions"]["python"]) for row in rows} == set(tested_versions.PYTHON)
    assert {row["java"] for row in rows} == set(tested_versions.JAVA)


def test_every_version_passed_in_two_rows() -> None:
    found: Counter[tuple[str, str]] = Counter()
    for row in PASSED:
        found.update((name, series(row["versions"][name])) for name in ("dbt-core", "pyspark", "python"))
        found.update(("Kafka", series(broker)) for broker in row["brokers"])
        found["Java", row["java"]] += 1
    assert {version: rows for version, rows in found.items() if rows < 2} == {}
    assert {version for name, version in found if name == "Kafka"} == {series(broker) for broker in EVERY_BROKER}


def test_oldest_and_newest_dependencies_are_in_rows() -> None:
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    floors = {r.name: str(r.specifier).removeprefix(">=") for r in map(Requirement, dependencies)}
    [oldest] = [row["versions"] for row in PASSED if row["oldest"]]
    for name in ("pandas", "numpy", "pyarrow"):
        assert Version(oldest[name]) == Version(floors[name])
        assert max(Version(row["versions"][name]).major for row in PASSED) > Version(oldest[name]).major


def test_bounds_of_the_package_are_those_of_the_table() -> None:
    names = {"dbt-core": tested_versions.DBT_CORE, "pyspark": tuple(map(series, tested_versions.PYSPARK))}
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    for requirement in map(Requirement, dependencies):
        if requirement.name in names:
            first, last = names[requirement.name][0], names[requirement.name][-1]
            major, minor = map(int, last.split("."))
            assert re.fullmatch(rf"<{major}\.{minor + 1},>={first}(\.\d+)?", str(requirement.specifier))


def test_untested_versions_are_one_line() -> None:
    assert tested_versions.warning(java="17", pyspark="4.0.0") is None
    warned = tested_versions.warning(java="24", pyspark="4.3.0")
    assert warned == (
        "pyspark 4.3.0 was not tested (4.0, 4.1, 4.2 were) and Java 24 was not tested "
        f"({', '.join(tested_versions.JAVA)} were). Everything may work; docs/compatibility.md lists what was tested."
    )
