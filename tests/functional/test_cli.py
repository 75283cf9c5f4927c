"""The command `upsert-kafka`: the broker in the foreground, and the records of a topic."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic

from dbt.adapters.upsert_kafka import embedded
from dbt.adapters.upsert_kafka.cli import main
from tests.dbt_project import PACKAGE_ROOT


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


@pytest.fixture
def topic(broker: str, topic_name: str) -> str:
    """A topic with three records: a text, a tombstone and bytes that are not UTF-8."""
    admin = KafkaAdminClient(bootstrap_servers=broker)
    admin.create_topics([NewTopic(topic_name, num_partitions=2, replication_factor=1)])
    admin.close()
    producer = KafkaProducer(bootstrap_servers=broker)
    producer.send(topic_name, key=b"a", value=b'{"x": 1}', partition=0).get(30)
    producer.send(topic_name, key=b"a", value=None, partition=0).get(30)
    producer.send(topic_name, key=b"\xff\x00", value=b"line\nbreak", partition=1).get(30)
    producer.close()
    return topic_name


def test_topic_shows_every_record_and_the_next_offsets(broker: str, topic: str) -> None:
    result = run("topic", topic, "--bootstrap-servers", broker)
    assert result.exit_code == 0
    heading, *records, last = [line.split() for line in result.output.splitlines()]
    assert heading == ["partition", "offset", "time", "key", "value"]
    assert sorted(record[:2] + record[4:] for record in records) == [
        ["0", "0", "a", '{"x":', "1}"],
        ["0", "1", "a", "(tombstone)"],
        ["1", "0", "0xff00", '"line\\nbreak"'],
    ]
    assert last[-2:] == ["--from", "0:2,1:1"]


def test_topic_starts_at_the_given_offsets(broker: str, topic: str) -> None:
    result = run("topic", topic, "--bootstrap-servers", broker, "--from", "0:1,1:1")
    assert [line.split()[:2] for line in result.output.splitlines()[1:-1]] == [["0", "1"]]


def test_topic_is_limited_and_says_where_to_go_on(broker: str, topic: str) -> None:
    first = run("topic", topic, "--bootstrap-servers", broker, "--partition", "0", "--limit", "1")
    cut = "There are more records than --limit 1. To show them: --from 0:1"
    assert (len(first.stdout.splitlines()), first.stderr.strip()) == (2, cut)
    as_json = run("topic", topic, "--bootstrap-servers", broker, "--partition", "0", "--limit", "1", "-o", "json")
    assert (json.loads(as_json.stdout)["offset"], as_json.stderr.strip()) == (0, cut)
    complete = run("topic", topic, "--bootstrap-servers", broker, "--partition", "0", "--limit", "2")
    assert (complete.stdout.splitlines()[-1], complete.stderr) == ("2 records; to show later records: --from 0:2", "")
    last = run("topic", topic, "--bootstrap-servers", broker, "--tail", "1", "--partition", "0", "-o", "json")
    [record] = map(json.loads, last.output.splitlines())
    assert (record["offset"], record["key"], record["value"], record["tombstone"]) == (1, "a", None, True)
    by_key = run("topic", topic, "--bootstrap-servers", broker, "--key", "0xff00")
    assert by_key.output.splitlines()[-1].startswith("1 record; ")


def test_tail_finds_records_before_an_aborted_transaction_and_markers(broker: str, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=broker, transactional_id=topic)
    producer.init_transactions()
    for number, ends in enumerate([producer.commit_transaction] * 3 + [producer.abort_transaction]):
        producer.begin_transaction()
        for _ in range(200 if number == 3 else 1):
            producer.send(topic, key=b"t", value=b"%d" % number, partition=0)
        producer.flush()
        ends()
    producer.close()
    found = run("topic", topic, "--bootstrap-servers", broker, "--tail", "4", "--partition", "0", "-o", "json")
    assert [json.loads(line)["offset"] for line in found.output.splitlines()] == [1, 2, 4, 6]
    last_of_key = run("topic", topic, "--bootstrap-servers", broker, "--tail", "1", "--key", "a", "-o", "json")
    assert [json.loads(line)["offset"] for line in last_of_key.output.splitlines()] == [1]
    every = run("topic", topic, "--bootstrap-servers", broker, "--tail", "9")
    assert every.output.splitlines()[-1] == "6 records; to show later records: --from 0:209,1:1"


def test_follow_ends_after_the_limit(broker: str, topic: str) -> None:
    found = run("topic", topic, "--bootstrap-servers", broker, "--follow", "--limit", "2", "-o", "json")
    assert (found.exit_code, len(found.output.splitlines())) == (0, 2), "does not wait for another record"


def test_repeated_headers_are_kept(broker: str, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=broker)
    headers = [("trace", b"1"), ("trace", b"2"), ("source", b"shop")]
    producer.send(topic, key=b"h", value=b"x", partition=1, headers=headers).get(30)
    producer.close()
    found = run("topic", topic, "--bootstrap-servers", broker, "--key", "h", "-o", "json")
    assert json.loads(found.output)["headers"] == {"trace": ["1", "2"], "source": "shop"}


def test_follow_shows_new_records_until_ctrl_c(broker: str, topic: str) -> None:
    command = [sys.executable, "-m", "dbt.adapters.upsert_kafka.cli", "topic", topic, "--bootstrap-servers", broker, "--follow"]
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE_ROOT), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        before = [process.stdout.readline() for _ in range(3)]
        producer = KafkaProducer(bootstrap_servers=broker)
        producer.send(topic, key=b"b", value=b"new", partition=1).get(30)
        producer.close()
        assert process.stdout.readline().split()[4:] == ["b", "new"], before
        process.send_signal(signal.SIGINT)
        assert process.stdout.read().strip() == ""
    assert process.returncode == 0


@pytest.mark.parametrize("selection", [("--partition", "7"), ("--from", "0:1,7:0")])
def test_partition_that_does_not_exist_is_an_error(broker: str, topic: str, selection: tuple[str, str]) -> None:
    result = run("topic", topic, "--bootstrap-servers", broker, *selection)
    assert result.exit_code == 1
    assert result.output == f"Error: Topic '{topic}' has no partition 7; it has the partitions 0 to 1\n"


def test_unknown_topic_is_an_error_that_lists_the_topics(broker: str, topic: str) -> None:
    result = run("topic", "nowhere", "--bootstrap-servers", broker)
    assert result.exit_code == 1
    assert result.output.startswith("Error: There is no topic 'nowhere'. Topics: ")
    assert topic in result.output
    near = run("topic", topic[:-1], "--bootstrap-servers", broker)
    assert near.output.startswith(f"Error: There is no topic '{topic[:-1]}'. Did you mean '{topic}'? Topics: ")


def test_malformed_offsets_are_an_error(broker: str, topic: str) -> None:
    result = run("topic", topic, "--bootstrap-servers", broker, "--from", "zero")
    assert result.exit_code == 2
    assert "'zero' is not a list partition:offset,partition:offset" in result.output


def test_folder_without_a_project_is_an_error_and_gets_no_broker(tmp_path: Path) -> None:
    result = run("broker", "--project-dir", str(tmp_path))
    assert result.exit_code == 1
    assert "has no dbt_project.yml" in result.output
    assert not list(tmp_path.iterdir())


def test_broker_in_the_foreground_is_shared_until_ctrl_c(tmp_path: Path) -> None:
    (tmp_path / "dbt_project.yml").touch()
    command = [sys.executable, "-m", "dbt.adapters.upsert_kafka.cli", "broker"]
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE_ROOT), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[4]
        assert embedded.ensure_running(tmp_path) == address
        assert embedded.stop(tmp_path) is True
        assert embedded.is_running(tmp_path)
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
    assert process.returncode == 0
    assert rest.strip() == "Stopped. The topics are kept."
    assert not embedded.is_running(tmp_path)
