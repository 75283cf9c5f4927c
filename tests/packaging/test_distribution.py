"""The wheel and the sdist: what they contain, and that the wheel works where this checkout is not installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = "import sys; from hatchling import build; print(getattr(build, f'build_{sys.argv[1]}')(sys.argv[2]))"


def build(kind: str, source: Path, folder: Path) -> Path:
    """Build a wheel or an sdist with the backend of pyproject.toml, without a build environment of its own."""
    return folder / output([sys.executable, "-c", BUILD, kind, str(folder)], source).splitlines()[-1]


def output(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def names_in(wheel: Path) -> set[str]:
    with ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def clean_venv(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new virtual environment into which pip installed the wheel. The dependencies are those of the tests."""
    folder = tmp_path_factory.mktemp("clean") / "venv"
    venv.create(folder, with_pip=True)
    [packages] = folder.glob("lib/python*/site-packages")
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if entry.name == "dbt":
            # dbt finds its plugins in the folder dbt/adapters where it is installed itself, so the wheel must go there too.
            shutil.copytree(entry, packages / "dbt", copy_function=os.symlink)
        elif "upsert_kafka" not in entry.name and not (packages / entry.name).exists():
            (packages / entry.name).symlink_to(entry)
    install = ["-m", "pip", "install", "--no-deps", "--no-index", "--no-compile", "--disable-pip-version-check", str(wheel)]
    output([str(folder / "bin/python"), *install], folder)
    return folder


def test_wheel_contains_all_modules_macros_and_data_files(wheel: Path) -> None:
    tracked = output(["git", "ls-files", "dbt"], ROOT).split()
    assert {"dbt/adapters/upsert_kafka/py.typed", "dbt/adapters/upsert_kafka/checksums.txt"} <= set(tracked)
    assert [name for name in tracked if name.endswith(".sql")]
    assert set(tracked) <= names_in(wheel)


def test_wheel_leaves_the_namespaces_of_dbt_to_dbt(wheel: Path) -> None:
    assert not names_in(wheel) & {"dbt/__init__.py", "dbt/adapters/__init__.py", "dbt/include/__init__.py"}


def test_sdist_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(build("sdist", ROOT, tmp_path)) as archive:
        archive.extractall(tmp_path, filter="data")
    [source] = [path for path in tmp_path.iterdir() if path.is_dir()]
    assert names_in(build("wheel", source, tmp_path)) == names_in(wheel)


def test_installed_wheel_is_found_by_dbt(clean_venv: Path) -> None:
    where = "import dbt.adapters.upsert_kafka as package; print(package.__file__)"
    assert output([str(clean_venv / "bin/python"), "-I", "-c", where], clean_venv).startswith(str(clean_venv))
    assert "upsert_kafka: " in output([str(clean_venv / "bin/python"), "-I", "-m", "dbt.cli.main", "--version"], clean_venv)


def test_installed_command_prints_its_help(clean_venv: Path) -> None:
    assert "warm-up" in output([str(clean_venv / "bin/upsert-kafka"), "--help"], clean_venv)
