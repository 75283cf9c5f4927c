"""The embedded broker: shared by processes, found again, restarted after kills, with clear errors if it can't start.

Each user of the broker is a separate process, as a dbt command is.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kafka import KafkaAdminClient
from kafka.admin import NewTopic

from dbt.adapters.upsert_kafka import embedded
from dbt.adapters.upsert_kafka.embedded.node import LOOPBACK, answers, read_state
from tests.dbt_project import PACKAGE_ROOT

USER = """
import sys
from pathlib import Path
from dbt.adapters.upsert_kafka import embedded
from dbt.adapters.upsert_kafka.errors import UpsertKafkaError
try:
    print(embedded.ensure_running(Path(sys.argv[1])), flush=True)
except UpsertKafkaError as error:
    sys.exit(f"{type(error).__name__}: {error.msg}")
sys.stdin.read()
"""

# Process 1 exists, but it is not a broker.
STALE_STATE = {"port": 1, "controller_port": 2, "cluster_id": "x", "supervisor": 1, "broker": 1}


class User:
    """A process that uses a project's broker until its standard input is closed."""

    def __init__(self, project: Path, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", USER, str(project)],
            env={**os.environ, "PYTHONPATH": str(PACKAGE_ROOT), **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def address(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self) -> tuple[int, str]:
        """End the process; returns its exit code and stderr."""
        _, errors = self.process.communicate(timeout=120)
        return self.process.returncode, errors

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "a project, with Ümläuts"
    folder.mkdir()
    yield folder
    embedded.stop(folder)


@pytest.fixture
def user(project: Path) -> Iterator[Callable[..., User]]:
    users: list[User] = []

    def start(**environment: str) -> User:
        users.append(User(project, environment))
        return users[-1]

    yield start
    for each in users:
        each.kill()
    wait_until(lambda: not embedded.is_running(project))


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true"
        time.sleep(0.05)


def state_of(project: Path) -> dict[str, int | str]:
    state = read_state(embedded.broker_folder(project) / "broker.json")
    assert state is not None
    return state


def topics_at(address: str) -> list[str]:
    client = KafkaAdminClient(bootstrap_servers=address)
    try:
        return [topic for topic in client.list_topics() if not topic.startswith("__")]
    finally:
        client.close()


def create_topic(address: str, name: str) -> None:
    client = KafkaAdminClient(bootstrap_servers=address)
    try:
        client.create_topics([NewTopic(name, num_partitions=2, replication_factor=1)])
    finally:
        client.close()


def test_broker_stops_with_its_user_and_topics_and_address_survive(project: Path, user: Callable[..., User]) -> None:
    first = user()
    address = first.address()
    create_topic(address, "kept")
    assert first.end() == (0, "")
    wait_until(lambda: not embedded.is_running(project))
    second = user()
    assert second.address() == address
    assert topics_at(address) == ["kept"]


def test_concurrent_threads_get_one_broker(project: Path) -> None:
    addresses: list[str] = []
    threads = [threading.Thread(target=lambda: addresses.append(embedded.ensure_running(project))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(addresses) == 4
    assert len(set(addresses)) == 1
    assert embedded.stop(project) is False
    wait_until(lambda: not embedded.is_running(project))


def test_concurrent_processes_share_one_broker_and_the_last_one_stops_it(project: Path, user: Callable[..., User]) -> None:
    users = [user() for _ in range(3)]
    addresses = {each.address() for each in users}
    assert len(addresses) == 1
    assert answers(addresses.pop(), str(state_of(project)["cluster_id"]))
    users[0].end()
    users[1].kill()
    time.sleep(1)
    assert embedded.is_running(project)
    users[2].end()
    wait_until(lambda: not embedded.is_running(project))


def test_killed_user_leaves_no_broker_behind(project: Path, user: Callable[..., User]) -> None:
    killed = user()
    killed.address()
    broker = int(state_of(project)["broker"])
    killed.kill()
    wait_until(lambda: not embedded.is_running(project))
    with pytest.raises(ProcessLookupError):
        os.kill(broker, 0)


@pytest.mark.nightly
def test_killed_broker_is_started_again_for_the_next_user(project: Path, user: Callable[..., User]) -> None:
    first = user()
    create_topic(first.address(), "kept")
    os.kill(int(state_of(project)["broker"]), signal.SIGKILL)
    wait_until(lambda: not embedded.is_running(project))
    assert topics_at(user().address()) == ["kept"]


@pytest.mark.nightly
def test_killed_broker_is_started_again_for_the_same_process(project: Path) -> None:
    address = embedded.ensure_running(project)
    os.kill(int(state_of(project)["broker"]), signal.SIGKILL)
    wait_until(lambda: not embedded.is_running(project))
    assert embedded.ensure_running(project) == address
    assert answers(address, str(state_of(project)["cluster_id"]))


@pytest.mark.nightly
def test_broker_whose_supervisor_was_killed_is_replaced(project: Path, user: Callable[..., User]) -> None:
    user().address()
    orphan = state_of(project)
    os.kill(int(orphan["supervisor"]), signal.SIGKILL)
    wait_until(lambda: not _runs(int(orphan["supervisor"])))
    assert embedded.is_running(project)
    assert answers(user().address(), str(orphan["cluster_id"]))
    assert state_of(project)["broker"] != orphan["broker"]
    assert not _runs(int(orphan["broker"]))


def _runs(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rsplit(")", 1)[1].split()[0] != "Z"


@pytest.mark.nightly
def test_stale_state_file_is_ignored(project: Path, user: Callable[..., User]) -> None:
    folder = embedded.broker_folder(project)
    folder.mkdir(parents=True)
    (folder / "broker.json").write_text(json.dumps(STALE_STATE))
    assert user().address().startswith(LOOPBACK)


@pytest.mark.nightly
def test_broker_with_a_damaged_state_file_is_replaced(project: Path, user: Callable[..., User]) -> None:
    first = user()
    create_topic(first.address(), "kept")
    (embedded.broker_folder(project) / "broker.json").write_text("{")
    assert topics_at(user().address()) == ["kept"]


@pytest.mark.nightly
def test_port_that_another_program_uses_gives_a_new_address(project: Path, user: Callable[..., User]) -> None:
    first = user()
    address = first.address()
    first.end()
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind((LOOPBACK, int(address.rsplit(":", 1)[1])))
        taken.listen()
        assert user().address() not in ("", address)


def test_broker_listens_on_loopback_only_and_its_data_is_private(project: Path) -> None:
    embedded.ensure_running(project)
    properties = (embedded.broker_folder(project) / "server.properties").read_text()
    listeners = next(line for line in properties.splitlines() if line.startswith("listeners="))
    assert listeners.count("://") == listeners.count(f"://{LOOPBACK}:") == 2
    assert embedded.broker_folder(project).parent.stat().st_mode & 0o777 == 0o700
    assert (embedded.broker_folder(project).parent / ".gitignore").read_text() == "*\n"


@pytest.mark.nightly
def test_interrupted_format_is_repeated(project: Path, user: Callable[..., User]) -> None:
    data = embedded.broker_folder(project) / "data"
    data.mkdir(parents=True)
    (data / "meta.properties").write_text("half a li")
    assert user().address().startswith(LOOPBACK)


@pytest.mark.nightly
def test_damaged_data_is_reported_with_the_folder_to_delete(project: Path, user: Callable[..., User]) -> None:
    first = user()
    first.address()
    first.end()
    folder = embedded.broker_folder(project)
    (folder / "data" / "meta.properties").write_text("")
    code, errors = user().end()
    assert code == 1
    assert errors.startswith("EmbeddedBrokerError: The embedded Kafka broker did not start: its data in")
    assert str(folder) in errors
    assert len(errors.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "script, reason", [(None, "no java on the PATH"), ("echo 'openjdk version \"11.0.2\"' >&2", "version 11")]
)
def test_missing_or_old_java_is_reported(tmp_path: Path, user: Callable[..., User], script: str | None, reason: str) -> None:
    path = tmp_path / "bin"
    path.mkdir()
    if script:
        (path / "java").write_text(f"#!/bin/sh\n{script}\n")
        (path / "java").chmod(0o755)
    code, errors = user(PATH=str(path), JAVA_HOME="").end()
    assert code == 1
    assert "Java 17 or newer is needed" in errors
    assert reason in errors
    assert len(errors.strip().splitlines()) == 1


def test_folder_that_cannot_be_created_is_reported(project: Path, user: Callable[..., User]) -> None:
    (project / ".upsert_kafka").write_text("a file where the folder belongs")
    code, errors = user().end()
    assert code == 1
    assert errors.startswith("EmbeddedBrokerError: The embedded Kafka broker can't use")
    assert len(errors.strip().splitlines()) == 1


@pytest.mark.nightly
def test_jars_folder_without_kafka_is_refused(tmp_path: Path, user: Callable[..., User]) -> None:
    code, errors = user(UPSERT_KAFKA_BROKER_JARS=str(tmp_path)).end()
    assert code == 1
    assert f"UPSERT_KAFKA_BROKER_JARS='{tmp_path}' contains no kafka_*.jar" in errors
