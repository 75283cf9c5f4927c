"""Runs import-linter on the contract in pyproject.toml: `python -m tests.import_contract`.

import-linter requires that the parents of a root package are namespaces. dbt-core makes `dbt` and `dbt.adapters` regular
packages.
Both are replaced by namespaces of this checkout. Nothing of dbt is imported.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from importlinter.cli import lint_imports

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    """Check the contract; returns the exit code."""
    for name in ("dbt", "dbt.adapters"):
        namespace = ModuleType(name)
        namespace.__path__ = [str(ROOT.joinpath(*name.split(".")))]
        namespace.__spec__ = ModuleSpec(name, loader=None, is_package=True)
        sys.modules[name] = namespace
    return lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True)


if __name__ == "__main__":
    sys.exit(main())
