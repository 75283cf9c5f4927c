"""The client of the resident dbt: which project it finds, what it imports, and residents that start or end at that moment."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
import threading
import time
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


class Answers(threading.Thread):
    """A resident that accepts one client, and then ends after it has sent some bytes."""

    def __init__(self, folder: Path, content: bytes = b"") -> None:
        super().__init__(daemon=True)
        folder.mkdir(parents=True)
        self._listener, self._content = socket.socket(socket.AF_UNIX), content
        here = os.getcwd()
        os.chdir(folder)
        self._listener.bind(protocol.SOCKET)
        os.chdir(here)
        self._listener.listen()
        self.start()

    def run(self) -> None:
        with self._listener, self._listener.accept()[0] as client:
            if self._content:
                client.sendall(self._content)


@pytest.mark.parametrize("content", [b"", b"\0\0"])
@pytest.mark.parametrize(("flag", "code"), [("--stop", 0), ("--status", 1)])
def test_resident_that_is_just_ending_does_not_run(
    project: Path, capsys: pytest.CaptureFixture[str], flag: str, code: int, content: bytes
) -> None:
    resident = Answers(project / ".upsert_kafka" / protocol.FOLDER, content)
    assert client.main([flag]) == code
    resident.join()
    printed = capsys.readouterr()
    assert "o resident dbt runs for this project.\n" in printed.out + printed.err


def test_resident_of_another_user_is_not_used(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = project / ".upsert_kafka" / protocol.FOLDER
    resident = Answers(folder)
    used: list[list[str]] = []
    monkeypatch.setattr(client, "_plain_dbt", used.append)
    monkeypatch.setattr(protocol, "peer_user", lambda connection: os.getuid() + 1)
    client.main(["run"])
    resident.join()
    assert used == [["run"]]
    assert capsys.readouterr().err == (
        f"upsert-kafka dbt: the resident dbt in {folder} belongs to another user. Plain dbt is used.\n"
    )


def test_ctrl_c_during_the_start_does_not_let_a_second_resident_start(tmp_path: Path) -> None:
    """The first one still imports dbt: it has no socket that another client could find."""
    folder = tmp_path / "resident"
    starting = "import os, sys, time\nopen('begun', 'w').close()\nwhile not os.path.exists('go'): time.sleep(0.01)"
    code = (
        "import sys\n"
        "from dbt.adapters.upsert_kafka.resident import client\n"
        "client.RESIDENT = sys.argv[2]\n"
        "client._start(sys.argv[1])"
    )
    started = subprocess.Popen([sys.executable, "-c", code, str(folder), starting], cwd=PACKAGE_ROOT, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while not (folder / "begun").exists():
        assert time.monotonic() < until and started.poll() is None
        time.sleep(0.01)
    started.send_signal(signal.SIGINT)
    started.wait()
    with open(folder / protocol.LOCK) as lock:
        with pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        (folder / "go").touch()
        fcntl.flock(lock, fcntl.LOCK_EX)


def test_folder_that_others_can_open_is_not_private(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    assert protocol.is_private(str(tmp_path))
    tmp_path.chmod(0o750)
    assert not protocol.is_private(str(tmp_path))
