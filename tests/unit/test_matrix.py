"""`make matrix`: what its environments contain, when they are built again, and what becomes of a row that fails."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from docs import compatibility_page
from tests.matrix import __main__ as matrix
from tests.matrix import environment
from tests.matrix.rows import CORE, JARS, ROWS

ROOT = environment.ROOT


def imported(file: Path) -> Iterator[str]:
    """The modules that a file imports, also inside of functions; `a.b` for `from a import b` too, which may be a module."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def core_files() -> set[Path]:
    """The files of the core, their conftest.py, and every file of this checkout's tests that these import."""
    todo = {ROOT / test.partition("::")[0] for test in CORE}
    todo |= {conftest for file in todo for folder in file.parents if (conftest := folder / "conftest.py").exists()}
    found: set[Path] = set()
    while todo:
        file = todo.pop()
        found.add(file)
        own = (ROOT / f"{name.replace('.', '/')}.py" for name in imported(file) if name.split(".")[0] in ("tests", "docs"))
        todo |= {other for other in own if other.exists()} - found
    return found


def test_environment_of_a_row_has_what_its_tests_import() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    required = [*project["dependencies"], *project["optional-dependencies"]["connect"], *environment.TEST_TOOLS]
    installed = {canonicalize_name(Requirement(text).name) for text in required}
    distributions = packages_distributions()
    files = core_files()
    assert ROOT / "tests/services.py" in files and ROOT / "tests/conftest.py" in files
    missing = {}
    for file in sorted(files):
        for module in {name.split(".")[0] for name in imported(file)} - {*sys.stdlib_module_names, "tests", "docs", "dbt"}:
            if not installed.intersection(map(canonicalize_name, distributions.get(module, [module]))):
                missing[module] = str(file.relative_to(ROOT))
    assert missing == {}


def test_environment_is_built_again_after_a_change(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    installed = []
    (tmp_path / "pyproject.toml").write_text("one")
    monkeypatch.setattr(environment, "ROOT", tmp_path)
    monkeypatch.setattr(environment, "FOLDER", tmp_path / ".matrix")
    monkeypatch.setattr(environment, "find_python", lambda version: "python")
    monkeypatch.setattr(environment, "_uv", lambda: "uv")

    def run(command: list[str]) -> str:
        installed.append(command)
        (tmp_path / ".matrix" / row.name).mkdir(exist_ok=True)
        return ""

    monkeypatch.setattr(environment, "_run", run)
    row = ROWS[0]
    environment.build(row)
    once = len(installed)
    environment.build(row)
    assert len(installed) == once > 0
    (tmp_path / "pyproject.toml").write_text("two")
    environment.build(row)
    assert len(installed) == 2 * once
    row = replace(row, packages=("pandas<3",))
    environment.build(row)
    assert len(installed) == 3 * once


def test_failed_row_is_in_the_table_and_the_others_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = ROWS[:5]
    _absent, broken, slow, red, good = (row.name for row in rows)
    monkeypatch.setattr(matrix, "ROWS", rows)
    monkeypatch.setattr(compatibility_page, "RESULTS", tmp_path / "compatibility.json")
    monkeypatch.setattr(compatibility_page, "PAGE", tmp_path / "compatibility.md")
    monkeypatch.setattr(environment, "find_java", lambda version: Path("java"))
    monkeypatch.setattr(environment, "java_version", lambda home: "17.0.1")
    monkeypatch.setattr(environment, "versions", lambda python: dict.fromkeys(["dbt-core", "pyspark", "python"], "9.9"))

    def find_python(version: str) -> str:
        if len(started) == 0 and not skipped:
            skipped.append(version)
            raise environment.NotAvailableError("Python is not on this machine")
        return "python"

    def build(row: Any) -> Path:
        started.append(row.name)
        if row.name == broken:
            raise environment.CommandError("uv: no such version")
        return Path("python")

    def tested(row: Any, python: Path, java_home: Path) -> tuple[int, int]:
        if row.name == slow:
            raise subprocess.TimeoutExpired("pytest", 1800)
        return (60, 2) if row.name == red else (62, 0)

    skipped: list[str] = []
    started: list[str] = []
    monkeypatch.setattr(environment, "find_python", find_python)
    monkeypatch.setattr(environment, "build", build)
    monkeypatch.setattr(matrix, "tested", tested)

    assert matrix.main([]) == 1
    assert started == [broken, slow, red, good]
    assert f"3 of 4 rows failed: {broken}, {slow}, {red}" in capsys.readouterr().out
    page = (tmp_path / "compatibility.md").read_text()
    outcomes = [line.split("|")[11].strip() for line in page.splitlines() if line.startswith("| 9.9") or "not installed" in line]
    assert sorted(text.replace(", own jars", "") for text in outcomes) == sorted(
        ["**not installed**", "**not finished after 30 minutes**", "**2 failed**", "passed"]
    )
    untested = [line for line in page.splitlines() if "**not tested**" in line]
    assert len(untested) == len(ROWS) - 4


def test_results_are_those_of_the_rows() -> None:
    rows = {row.name: row for row in ROWS}
    for result in compatibility_page.results():
        row = rows.get(result["row"])
        assert row is not None, f"{result['row']} is not in rows.py: delete its result"
        assert (result["oldest"], result["java"], tuple(result["brokers"])) == (row.oldest, row.java, row.brokers), row.name
        assert result["other_jars"] == (row.spark in JARS)
        for name, version in (("python", row.python), ("dbt-core", row.dbt), ("pyspark", row.spark)):
            assert f"{result['versions'][name]}.".startswith(f"{version}."), (row.name, name)
