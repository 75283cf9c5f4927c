"""The properties, ports and error messages of one server, without starting it."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from dbt.adapters.upsert_kafka.embedded.node import LOOPBACK, Node, free_ports, new_cluster_id, read_state


def node(folder: Path, **changes: object) -> Node:
    return Node(folder, folder / "jars", "java", "MkU3OEVBNTcwNTJENDM2Qg", 9092, 9093, **changes)  # type: ignore[arg-type]


def test_given_properties_override_the_defaults(tmp_path: Path) -> None:
    properties = node(tmp_path, properties={"num.partitions": "7", "log.dirs": "elsewhere"}).server_properties()
    assert (properties["num.partitions"], properties["log.dirs"]) == ("7", "elsewhere")
    assert properties["auto.create.topics.enable"] == "false"


def test_no_property_contains_the_folder_s_name(tmp_path: Path) -> None:
    assert not [value for value in node(tmp_path).server_properties().values() if str(tmp_path) in value]


def test_cluster_id_is_a_kafka_uuid_without_a_leading_dash() -> None:
    ids = {new_cluster_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert {len(each) for each in ids} == {22}
    assert not [each for each in ids if each.startswith("-")]


def test_preferred_port_is_used_if_it_is_free() -> None:
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        taken.listen()
        used = taken.getsockname()[1]
        [free] = free_ports(1)
        assert free_ports(2, [used, free])[0] == free
        assert used not in free_ports(2, [used, free])


@pytest.mark.parametrize("content", ["", "{", "null", "[]", '{"port": 1}', "\x00\x00"])
def test_damaged_state_reads_as_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "broker.json").write_text(content)
    assert read_state(tmp_path / "broker.json") is None


def test_missing_state_reads_as_none(tmp_path: Path) -> None:
    assert read_state(tmp_path / "broker.json") is None


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        ("java.io.IOException: No space left on device", "no space is left on the device with {folder}"),
        ("org.apache.kafka.common.KafkaException: Socket server failed to bind: Address already in use", "its port is used"),
        ("Failed to acquire lock on file .lock in /data. A Kafka instance in another process", "another Kafka process uses"),
        ("java.lang.NoClassDefFoundError: scala/Serializable", "the jars in {folder}/jars are incomplete"),
        ("SLF4J: noise\n12:00:01 ERROR Kafka - something new.\n\tat a.b.C", "12:00:01 ERROR Kafka - something new"),
        ("", "its log is empty"),
    ],
)
def test_reason_is_read_from_the_log(tmp_path: Path, log: str, reason: str) -> None:
    (tmp_path / "broker.log").write_text(log)
    assert node(tmp_path).reason().startswith(reason.format(folder=tmp_path))
