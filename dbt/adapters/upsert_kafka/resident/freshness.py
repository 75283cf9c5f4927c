"""Whether the resident's imports are those that a new process would have: the same Python, packages and sources.

Packages are compared by the names and times of `*.dist-info` and `*.pth`, which every installer changes. Modules outside of the
folders with packages (editable installs, PYTHONPATH) are compared by the times of their files.
"""

from __future__ import annotations

import os
import re
import site
import sys
import sysconfig
from collections.abc import Mapping
from typing import Any

from dbt.adapters.upsert_kafka.resident import protocol

# What Python itself and the libraries below it take from the environment when they start.
START_VARIABLES = re.compile("PYTHON|LANG$|LANGUAGE$|LC_|LD_|DYLD_|COVERAGE_")
PACKAGE_FILES = (".dist-info", ".pth", ".egg-link")

Stamps = dict[str, int]


class Freshness:
    """What this process was started with."""

    def __init__(self) -> None:
        self._variables = start_variables(os.environ)
        self._packages = _package_stamps()
        self._sources = _source_stamps()

    def problem(self, request: Mapping[str, Any]) -> str | None:
        """What has changed; None if this process is as a new one for this request would be."""
        if request["version"] != protocol.VERSION:
            return "dbt-upsert-kafka has another version"
        if request["python"] != [sys.executable, sys.version]:
            return "Python has changed"
        variables = start_variables(request["environment"])
        if changed := sorted(v for v in {*variables, *self._variables} if variables.get(v) != self._variables.get(v)):
            return f"{', '.join(changed)} changed"
        if _package_stamps() != self._packages:
            return "the installed packages have changed"
        if any(_stamp(path) != stamp for path, stamp in self._sources.items()):
            return "imported modules have changed"
        return None


def start_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that only a new process can follow."""
    return {name: value for name, value in environment.items() if START_VARIABLES.match(name)}


def _package_folders() -> list[str]:
    folders = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages(), site.getusersitepackages()}
    return sorted(folder for folder in folders if os.path.isdir(folder))


def _package_stamps() -> Stamps:
    return {
        entry.path: entry.stat().st_mtime_ns
        for folder in _package_folders()
        for entry in os.scandir(folder)
        if entry.name.endswith(PACKAGE_FILES)
    }


def _source_stamps() -> Stamps:
    """The files of modules that no installer has copied."""
    installed = tuple(f"{folder}{os.sep}" for folder in [*_package_folders(), sysconfig.get_path("stdlib")])
    files = {str(path) for module in list(sys.modules.values()) if (path := getattr(module, "__file__", None))}
    return {path: _stamp(path) for path in files if os.path.isabs(path) and not path.startswith(installed)}


def _stamp(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0
