"""What importing the adapter imports in a new process, and what is imported while Spark starts."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from dbt.adapters.upsert_kafka import late_imports

PACKAGE = "dbt.adapters.upsert_kafka"
ROOT = Path(late_imports.__file__).parent
IMPORT = f"""
import json, sys
from importlib import import_module
import {PACKAGE}
{PACKAGE}.Plugin
early = sorted(sys.modules)
from {PACKAGE} import late_imports
for name in late_imports.MODULES:
    import_module(name)
print(json.dumps([early, sorted(sys.modules)]))
"""


@pytest.fixture(scope="module")
def imported() -> tuple[set[str], set[str]]:
    """The modules of a new process that imported the adapter, and those after the late imports."""
    done = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True, cwd=ROOT.parents[2])
    early, late = json.loads(done.stdout)
    return set(early), set(late)


@pytest.mark.parametrize("library", ["kafka", "pyspark", "py4j", "numpy", "pandas", "pyarrow", "fastavro"])
def test_import_of_the_adapter_does_not_import(imported: tuple[set[str], set[str]], library: str) -> None:
    assert f"{PACKAGE}.impl" in imported[0]
    assert library not in imported[0], f"every dbt command, also `dbt parse`, imports {library}: see late_imports.py"


def test_late_imports_include_what_methods_of_the_adapter_import(imported: tuple[set[str], set[str]]) -> None:
    early, late = imported
    in_functions = {name for module in early if module.startswith(f"{PACKAGE}.") for name in _imported_in_functions(module)}
    assert f"{PACKAGE}.publish.pipeline" in in_functions
    missing = {name for name in in_functions - late if not name.startswith(f"{PACKAGE}.inspection")}
    assert not missing, "the resident dbt would import them in every command: add them to late_imports.MODULES"


@pytest.mark.parametrize("library", ["pandas", "pyarrow"])
def test_late_imports_do_not_import(imported: tuple[set[str], set[str]], library: str) -> None:
    assert library not in imported[1], f"{library} has a thread, and the resident forks after the late imports"


def _imported_in_functions(module: str) -> set[str]:
    """The modules of this package that the functions of a module import."""
    path = ROOT.joinpath(*module.removeprefix(f"{PACKAGE}.").split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    functions = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.FunctionDef)]
    imports = [node for function in functions for node in ast.walk(function) if isinstance(node, ast.ImportFrom)]
    names = {name for node in imports for name in (node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names))}
    return {name for name in names if name.startswith(f"{PACKAGE}.") and _is_module(name)}


def _is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.removeprefix(f"{PACKAGE}.").split("."))
    return path.with_suffix(".py").is_file()
