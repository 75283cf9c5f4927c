"""Transactions of others that are open on a topic: what they write is not known yet.

Leaves to `publish` which runs depend on what a topic contains.
"""

from __future__ import annotations

import time
from dataclasses import replace

from dbt.adapters.events.logging import AdapterLogger
from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from dbt.adapters.upsert_kafka.errors import UpsertKafkaError, count_of
from dbt.adapters.upsert_kafka.kafka_client import topics
from dbt.adapters.upsert_kafka.kafka_client.topics import READ_UNCOMMITTED, Topic

logger = AdapterLogger("upsert_kafka")

HELD_BACK_SECONDS = 10.0
"""For which a transaction of another run may hold back the end of a topic."""
POLL_SECONDS = 0.2


def describe_settled(admin: KafkaAdminClient, topic: Topic) -> Topic | None:
    """The topic with its high watermarks, when all records before them are committed or aborted; None if it is gone.

    As long as the high watermarks stay, no transaction has written since.

    Raises:
        UpsertKafkaError: a transaction stays open. The message names it.
    """
    until = time.monotonic() + HELD_BACK_SECONDS
    while True:
        # Before the ends: what is written in between is then a difference.
        written = topics.ends(admin, topic.name, topic.end, READ_UNCOMMITTED)
        found = topics.describe(admin, topic.name)
        if found is None:
            return None
        held_back = [partition for partition, offset in written.items() if found.end.get(partition, 0) < offset]
        if not held_back:
            return replace(found, written=written)
        if time.monotonic() > until:
            raise UpsertKafkaError(
                f"topic '{topic.name}': {open_transaction(admin, topic.name)} has been open for more than "
                f"{HELD_BACK_SECONDS:.0f} s ({count_of(len(held_back), 'partition')}), so it is not known what the topic will "
                "contain. Nothing was written. Wait until it ends; if it is of a killed run with another "
                "sink_transactional_id_prefix, run the model once more with that prefix"
            )
        time.sleep(POLL_SECONDS)


def open_transaction(admin: KafkaAdminClient, topic: str) -> str:
    """The transaction that is open on a topic, as far as it can be found."""
    try:
        described = admin.describe_transactions(
            [found.transactional_id for broker in admin.list_transactions().values() for found in broker]
        )
    except KafkaError as error:
        logger.debug(f"Transactions could not be listed: {error!r}")
        return "a transaction"
    for name, found in described.items():
        if any(partition.topic == topic for partition in found.topic_partitions):
            return f"the transaction of transactional id '{name}'"
    return "a transaction"
