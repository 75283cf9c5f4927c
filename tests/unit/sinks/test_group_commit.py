"""The requests that make offsets part of a transaction: contents, versions, coordinators, and errors about rights."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kafka import errors

from dbt.adapters.upsert_kafka.errors import MissingRightError
from dbt.adapters.upsert_kafka.sinks import GroupCommit
from dbt.adapters.upsert_kafka.sinks.group_commit import commit_offsets
from dbt.adapters.upsert_kafka.sinks.protocol import GROUP, TRANSACTION, Client, Raised, check
from dbt.adapters.upsert_kafka.sinks.record_batch import Producer

COMMIT = GroupCommit("events", "g", {}, {("a", 0): 3, ("a", 1): 4, ("b", 0): 5}, is_empty=False, metadata="by test")


class FakeClient(Client):
    """Answers the two requests with error codes, and keeps the requests."""

    def __init__(self, add: int = 0, commit: tuple[int, ...] = (0, 0, 0)) -> None:
        self.codes, self.asked = (add, commit), list[tuple[int, str, Any]]()

    def ask_coordinator(
        self,
        name: str,
        request: Callable[[], Any],
        code: Callable[[Any], int],
        raises: Raised = (),
        key_type: int = TRANSACTION,
    ) -> None:
        self.asked.append((key_type, name, request()))
        partitions = [SimpleNamespace(error_code=c) for c in self.codes[1]]
        check(code(SimpleNamespace(error_code=self.codes[0], topics=[SimpleNamespace(partitions=partitions)])))


def ask(client: FakeClient) -> None:
    commit_offsets(cast(Client, client), Producer("id", 7, 2), COMMIT, "User:dbt")


def test_group_is_added_before_its_coordinator_gets_the_offsets() -> None:
    client = FakeClient()
    ask(client)
    [(add_type, add_name, add), (commit_type, commit_name, commit)] = client.asked
    assert (add_type, add_name, commit_type, commit_name) == (TRANSACTION, "id", GROUP, "g")
    for request in (add, commit):
        assert (request.transactional_id, request.producer_id, request.producer_epoch, request.group_id) == ("id", 7, 2, "g")
    offsets = {
        (t.name, p.partition_index): (p.committed_offset, p.committed_metadata) for t in commit.topics for p in t.partitions
    }
    assert offsets == {partition: (offset, "by test") for partition, offset in COMMIT.offsets.items()}
    # Version 3 and newer name a member of the group, version 5 needs transaction.version 2.
    assert (add._max_version, commit._max_version) == (1, 2)


@pytest.mark.parametrize(
    ("client", "right"),
    [
        (FakeClient(add=errors.GroupAuthorizationFailedError.errno), "READ on group 'g'"),
        (FakeClient(commit=(0, errors.GroupAuthorizationFailedError.errno, 0)), "READ on group 'g'"),
        (FakeClient(commit=(0, 0, errors.TopicAuthorizationFailedError.errno)), "READ on topic 'a, b'"),
    ],
)
def test_missing_right_is_named(client: FakeClient, right: str) -> None:
    with pytest.raises(MissingRightError, match=f"User:dbt lacks {right}"):
        ask(client)


def test_error_of_one_partition_is_raised() -> None:
    with pytest.raises(errors.InvalidProducerEpochError):
        ask(FakeClient(commit=(0, errors.InvalidProducerEpochError.errno, 0)))
