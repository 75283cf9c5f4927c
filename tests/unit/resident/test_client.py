"""The client of the resident dbt: which project it finds, and what it imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dbt.adapters.upsert_kafka.resident import client, protocol
from tests.dbt_project import PACKAGE_ROOT


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "shop" / "models").mkdir(parents=True)
    (tmp_path / "shop" / "dbt_project.yml").touch()
    monkeypatch.chdir(tmp_path / "shop" / "models")
    return tmp_path / "shop"


def test_project_is_found_as_dbt_finds_it(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert client.find_project(["run"]) == str(project)
    assert client.find_project(["run", "--project-dir", ".."]) == str(project)
    assert client.find_project(["run", f"--project-dir={project}"]) == str(project)
    assert client.find_project(["run", "--project-dir", str(tmp_path)]) is None
    monkeypatch.setenv("DBT_PROJECT_DIR", str(tmp_path))
    assert client.find_project(["run"]) is None
    monkeypatch.delenv("DBT_PROJECT_DIR")
    monkeypatch.chdir(tmp_path)
    assert client.find_project(["run"]) is None


def test_client_imports_neither_dbt_nor_pyspark() -> None:
    code = (
        "import sys\n"
        "import dbt.adapters.upsert_kafka.__main__, dbt.adapters.upsert_kafka.resident.client\n"
        "print(*(name for name in sys.modules if name.startswith(('dbt', 'pyspark', 'click', 'kafka'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=PACKAGE_ROOT, capture_output=True, text=True, check=True)
    ours = "dbt.adapters.upsert_kafka"
    assert set(done.stdout.split()) == {
        *("dbt", "dbt.adapters", ours, f"{ours}.__main__"),
        *(f"{ours}.resident{name}" for name in ("", ".client", ".protocol")),
    }


def test_unknown_platform_uses_plain_dbt(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    used: list[list[str]] = []
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(client, "_plain_dbt", used.append)
    client.main(["run"])
    assert used == [["run"]]
    assert capsys.readouterr().err == "upsert-kafka dbt: there is no resident dbt on win32. Plain dbt is used.\n"


def test_folder_that_others_can_open_is_not_private(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    assert protocol.is_private(str(tmp_path))
    tmp_path.chmod(0o750)
    assert not protocol.is_private(str(tmp_path))
