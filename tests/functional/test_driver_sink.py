"""The sink for the small batches of a stream: what stays open between deliveries, and what is opened again after a failure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from kafka import KafkaAdminClient, errors

from dbt.adapters.upsert_kafka.errors import DeliveryError
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.kafka_client.internals import close_connections
from dbt.adapters.upsert_kafka.sinks import Delivery, StateWrite, Target, TransactionPlan
from dbt.adapters.upsert_kafka.sinks.driver import DriverSink
from dbt.adapters.upsert_kafka.sinks.protocol import Client
from dbt.adapters.upsert_kafka.sinks.writer import Writer
from tests.services import read_topic

SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("partition", pa.int32())])


@dataclass
class Deliveries:
    """Delivers one row at a time to partition 0, and counts the clients."""

    broker: str
    topic: str
    admin: KafkaAdminClient
    transactional_id: str | None = None
    sink: DriverSink = field(default_factory=DriverSink)
    clients: list[Client] = field(default_factory=list)

    @property
    def state_topic(self) -> str:
        return f"{self.topic}.state"

    def deliver(self, value: str) -> Delivery:
        rows = pa.table([[b"k"], [value.encode()], [0]], schema=SCHEMA)
        plan = TransactionPlan(None, StateWrite(self.state_topic, lambda _: (b"state", value.encode())))
        kafka = KafkaSettings(self.broker, {})
        return self.sink.deliver(rows, Target(self.topic, 2, kafka, self.admin, self.transactional_id, plan))

    def values(self) -> tuple[list[str], list[str]]:
        """Those in the topic and in the state topic."""
        first, second = ([(r.value or b"").decode() for r in read_topic(self.broker, t)] for t in (self.topic, self.state_topic))
        return first, second


@pytest.fixture(params=["at-least-once", "exactly-once"])
def deliveries(
    request: pytest.FixtureRequest, broker: str, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Deliveries]:
    admin = KafkaAdminClient(bootstrap_servers=broker)
    found = Deliveries(broker, topic_name, admin, topic_name if request.param == "exactly-once" else None)
    admin.create_topics({name: {"num_partitions": 2} for name in (found.topic, found.state_topic)}, wait_for_metadata=True)
    create = Client.__init__

    def counted(self: Client, *arguments: object, **options: object) -> None:
        found.clients.append(self)
        create(self, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Client, "__init__", counted)
    yield found
    found.sink.close()
    close_connections(admin)


def test_connections_stay_open_and_are_opened_again_after_a_failure(
    deliveries: Deliveries, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert deliveries.deliver("1").records == 1
    deliveries.deliver("2")
    assert len(deliveries.clients) == 1

    def fail(self: Writer) -> None:
        raise errors.MessageSizeTooLargeError

    with monkeypatch.context() as patched, pytest.raises(DeliveryError):
        patched.setattr(Writer, "flush", fail)
        deliveries.deliver("refused")
    before = len(deliveries.clients)
    deliveries.deliver("3")
    deliveries.deliver("4")
    assert len(deliveries.clients) == before + 1
    # The first one is aborted in a transaction. Without one it may have been sent before the failure.
    values, states = deliveries.values()
    assert [value for value in values if value != "refused"] == states == ["1", "2", "3", "4"]
    assert "refused" not in values or deliveries.transactional_id is None


def test_lost_connections_and_other_writers_do_not_stop_a_delivery(deliveries: Deliveries) -> None:
    deliveries.deliver("1")
    for client in deliveries.clients:
        for connection in list(client.manager._conns.values()):
            connection.close()
    if deliveries.transactional_id:
        # Each delivery gets an epoch of its own.
        with Client({"bootstrap_servers": deliveries.broker}, 30) as other:
            other.open(deliveries.transactional_id, 60_000)
    deliveries.deliver("2")
    assert deliveries.values() == (["1", "2"], ["1", "2"])
