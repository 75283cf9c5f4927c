"""Who gets the shared JVM."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from dbt.adapters.upsert_kafka.resident.desk import ENDED, UNUSABLE, Desk, Fingerprint, Jvm

SETTINGS: Fingerprint = {"spark.master": "1", "PASSWORD": "1"}
OTHERS: Fingerprint = {"spark.master": "2", "PASSWORD": "1"}


@pytest.fixture
def ends() -> Iterator[dict[str, int]]:
    """A pipe: the end of the JVM (`read`) and that of the resident (`write`)."""
    read, write = os.pipe()
    files = {"read": read, "write": write}
    yield files
    for file in files.values():
        os.close(file)


def jvm(ends: dict[str, int], fingerprint: Fingerprint = SETTINGS) -> Jvm:
    return Jvm(port=1, secret="s", process=99, fingerprint=fingerprint, pipe=os.dup(ends["write"]))


ATTACH = {"answer": "attach", "port": 1, "secret": "s"}
START = {"answer": "start", "reason": None}


def test_first_child_starts_the_jvm_and_others_wait_for_it(ends: dict[str, int]) -> None:
    desk = Desk()
    assert desk.ask(10, SETTINGS) == [(10, START)]
    assert desk.ask(11, SETTINGS) == []
    assert desk.started(10, jvm(ends)) == [(10, ATTACH), (11, ATTACH)]
    assert desk.ask(12, SETTINGS) == [(12, ATTACH)]
    desk.close()


def test_waiting_child_starts_the_jvm_if_the_first_could_not(ends: dict[str, int]) -> None:
    desk = Desk()
    desk.ask(10, SETTINGS)
    desk.ask(11, SETTINGS)
    assert desk.left(10) == [(11, START)]


def test_other_settings_replace_an_unused_jvm(ends: dict[str, int]) -> None:
    desk = Desk()
    desk.ask(10, SETTINGS)
    desk.started(10, jvm(ends))
    desk.left(10)
    [(child, answer)] = desk.ask(11, OTHERS)
    assert child == 11 and answer == {
        "answer": "start",
        "reason": "Spark is started again, because spark.master changed",
    }
    assert desk.jvm is None


def test_other_settings_get_their_own_jvm_while_it_is_used(ends: dict[str, int]) -> None:
    desk = Desk()
    desk.ask(10, SETTINGS)
    [(_, while_starting)] = desk.ask(11, OTHERS)
    desk.started(10, jvm(ends))
    [(_, while_used)] = desk.ask(11, OTHERS)
    assert while_starting == while_used and while_used["answer"] == "own" and "(spark.master)" in while_used["reason"]
    desk.close()


def test_jvm_that_has_ended_is_started_again(ends: dict[str, int]) -> None:
    desk = Desk()
    desk.ask(10, SETTINGS)
    desk.started(10, jvm(ends))
    os.close(ends.pop("read"))
    assert desk.ask(11, SETTINGS) == [(11, {"answer": "start", "reason": ENDED})]


def test_jvm_that_does_not_answer_is_replaced_by_its_only_user(ends: dict[str, int]) -> None:
    desk = Desk()
    desk.ask(10, SETTINGS)
    desk.started(10, jvm(ends))
    desk.ask(11, SETTINGS)
    before = desk.jvm
    assert desk.unreachable(10, 1, SETTINGS) == [(10, {"answer": "own", "reason": UNUSABLE})]
    assert desk.jvm is before is not None and before.is_alive
    assert desk.unreachable(11, 1, SETTINGS) == [(11, {"answer": "start", "reason": ENDED})]
    assert desk.jvm is None


def test_jvm_that_has_ended_is_replaced_once(ends: dict[str, int]) -> None:
    desk = Desk()
    desk.ask(10, SETTINGS)
    desk.started(10, jvm(ends))
    desk.ask(11, SETTINGS)
    read, write = os.pipe()
    os.close(ends.pop("read"))
    assert desk.unreachable(10, 1, SETTINGS) == [(10, {"answer": "start", "reason": ENDED})]
    assert desk.unreachable(11, 1, SETTINGS) == []
    assert desk.started(10, Jvm(1, "s", 99, SETTINGS, write)) == [(10, ATTACH), (11, ATTACH)]
    desk.close()
    os.close(read)


def test_jvm_that_goes_on_with_the_jobs_of_a_command_ends_with_its_last_user(ends: dict[str, int]) -> None:
    desk = Desk()
    desk.ask(10, SETTINGS)
    desk.started(10, jvm(ends))
    desk.ask(11, SETTINGS)
    desk.distrust(10)
    assert desk.jvm is not None
    desk.left(10)
    desk.distrust(11)
    assert desk.jvm is None
