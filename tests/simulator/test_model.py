"""The model answers as real brokers do: random sequences of requests are replayed on both, and every answer is compared."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import OffsetSpec

from dbt.adapters.upsert_kafka.kafka_client.internals import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
)
from dbt.adapters.upsert_kafka.sinks.protocol import EPOCH_PER_TRANSACTION, NEXT_EPOCH_SINCE, TRANSACTION, Client
from dbt.adapters.upsert_kafka.sinks.record_batch import Encoder, Producer, stamp
from tests.faults.versions import DEFAULT, VERSIONS, nightly_unless
from tests.simulator.brokers import CONCURRENT_TRANSACTIONS, OK, Brokers, Partition

PARTITIONS, STEPS, SEQUENCES = 2, 25, 12
TIMEOUT_MS = 600_000


# Kafka 2.8 does not verify batches, and can't describe transactions, which tells when the markers are written.
@pytest.fixture(scope="module", params=nightly_unless([DEFAULT], [name for name in VERSIONS if name != "2.8"]))
def cluster(request: pytest.FixtureRequest) -> Iterator[str]:
    with VERSIONS[request.param]() as cluster:
        yield cluster.bootstrap_servers


class RealBrokers:
    """The requests of `Brokers`, sent to real brokers."""

    def __init__(self, servers: str, topic: str) -> None:
        self.client = Client({"bootstrap_servers": servers}, 30, topic)
        self.admin = KafkaAdminClient(bootstrap_servers=servers)
        self.admin.create_topics({topic: {"num_partitions": PARTITIONS, "replication_factor": 1}}, wait_for_metadata=True)
        self.topic = topic
        # A leader answers with an offset when it accepts batches.
        self.ends()

    def close(self) -> None:
        self.client.close()
        self.admin.close()

    def init_producer_id(self, name: str, producer: Producer | None) -> tuple[int, Producer]:
        # The first answers of a new coordinator are errors that the client repeats.
        names = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch} if producer else {}
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=TIMEOUT_MS, max_version=3, **names)
        answer = self._ask(name, request)
        return answer.error_code, Producer(name, answer.producer_id, answer.producer_epoch)

    def add_partitions(self, producer: Producer, partition: int) -> int:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=producer.transactional_id,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=self.topic, partitions=[partition])],
            max_version=1,
        )
        [topic] = self._ask(producer.transactional_id, request).results_by_topic_v3_and_below
        return int(topic.results_by_partition[0].partition_error_code)

    def end(self, producer: Producer, commits: bool) -> int:
        request = EndTxnRequest(
            transactional_id=producer.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=commits,
            max_version=1,
        )
        return int(self._ask(producer.transactional_id, request).error_code)

    def abort(self, producer: Producer) -> tuple[int, Producer]:
        request = EndTxnRequest(
            transactional_id=producer.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=False,
            min_version=NEXT_EPOCH_SINCE,
        )
        answer = self._ask(producer.transactional_id, request)
        return answer.error_code, Producer(producer.transactional_id, answer.producer_id, answer.producer_epoch)

    def produce(self, producer: Producer, partition: int, sequence: int) -> tuple[int, int]:
        batch = Encoder("none").encode(int(time.time() * 1000), pa.array([b"k"]), pa.array([b"v"]), None)
        data = ProduceRequest.TopicProduceData
        payload = data.PartitionProduceData(index=partition, records=stamp(batch, producer, sequence))
        request = ProduceRequest(
            transactional_id=producer.transactional_id,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[data(name=self.topic, partition_data=[payload])],
            max_version=8,
        )
        [topic] = self.client._request(request, 1).responses
        [answer] = topic.partition_responses
        return answer.error_code, answer.base_offset

    def ends(self) -> list[int]:
        partitions = [TopicPartition(self.topic, number) for number in range(PARTITIONS)]
        found = self.admin.list_partition_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
        return [found[partition].offset for partition in partitions]

    def settled(self, name: str) -> bool:
        """Whether no transaction is being ended."""
        return not self.admin.describe_transactions([name])[name].state.name.startswith("PREPARE")

    def _ask(self, name: str, request: Any) -> Any:
        return self.client._request(request, self.client._find_coordinator(TRANSACTION, name))


class Pair:
    """A transactional id on real brokers and on the model."""

    def __init__(self, real: RealBrokers, name: str) -> None:
        self.real, self.name = real, name
        version = real.client._transaction_version(name)
        # Markers are written at once. No transaction times out, because the clock stands still.
        self.model = Brokers(lambda: 0.0, self._now_or_never, version)
        self.kinds = ["init", "own", "add", "add", "end", "produce", "produce"]
        if version >= EPOCH_PER_TRANSACTION:
            self.kinds += ["abort", "abort"]
        real.client.open(name, TIMEOUT_MS)
        found = real.init_producer_id(name, None)[1]
        self.model.init_producer_id(name, 600)
        _, producer_id, epoch = self.model.init_producer_id(name, 600)
        self.producers = [(found, Producer(name, producer_id, epoch))]
        self.sequences: dict[tuple[int, int, int], int] = {}

    @staticmethod
    def _now_or_never(action: Any) -> None:
        if action.__name__ != "abort":
            action()

    def step(self, random: Random) -> tuple[str, Any, Any]:
        """A request, the real answer and the model's. Real brokers need a moment to end a transaction."""
        real, model = random.choice(self.producers[-3:])
        partition, kind = random.randrange(PARTITIONS), random.choice(self.kinds)
        text = f"{kind} epoch {real.epoch} partition {partition}"
        match kind:
            case "init":
                return text, *self._next(
                    lambda: self.real.init_producer_id(self.name, None), self.model.init_producer_id(self.name, 600)
                )
            case "own":
                answer = self.model.init_producer_id(self.name, 600, model.producer_id, model.epoch)
                return text, *self._next(lambda: self.real.init_producer_id(self.name, real), answer)
            case "abort":
                answer = self.model.abort(self.name, model.producer_id, model.epoch)
                return text, *self._next(lambda: self.real.abort(real), answer)
            case "add":
                wanted = self.model.add_partitions(
                    self.name, model.producer_id, model.epoch, {Partition(self.real.topic, partition)}
                )
                return text, self._real(lambda: self.real.add_partitions(real, partition), wanted), wanted
            case "end":
                commits = random.random() < 0.5
                wanted = self.model.end(self.name, model.producer_id, model.epoch, commits)
                return f"{text} commits {commits}", self._real(lambda: self.real.end(real, commits), wanted), wanted
        sequence = self.sequences.get((real.producer_id, real.epoch, partition), 0)
        wanted, _ = self.model.produce(
            Partition(self.real.topic, partition), model.producer_id, model.epoch, sequence, (("k", "v"),)
        )
        found = self._real(lambda: self.real.produce(real, partition, sequence)[0], wanted)
        if found == OK and random.random() < 0.8:
            # Else the same batch is sent again.
            self.sequences[real.producer_id, real.epoch, partition] = sequence + 1
        return f"{text} sequence {sequence}", found, wanted

    def _next(self, ask: Callable[[], tuple[int, Producer]], wanted: tuple[int, int, int]) -> tuple[Any, Any]:
        """The epochs of the answers if both give one, else the error codes."""
        code, producer_id, epoch = wanted
        made: list[Producer] = []

        def asked() -> int:
            code, producer = ask()
            made[:] = [producer]
            return code

        found = self._real(asked, code)
        if found == code == OK:
            self.producers.append((made[0], Producer(self.name, producer_id, epoch)))
            return made[0].epoch, epoch
        return found, code

    def _real(self, ask: Any, wanted: int) -> int:
        """The real answer, when no transaction is being ended."""
        while not self.real.settled(self.name):
            time.sleep(0.01)
        while (found := ask()) == CONCURRENT_TRANSACTIONS and wanted != CONCURRENT_TRANSACTIONS:
            time.sleep(0.01)
        while not self.real.settled(self.name):
            time.sleep(0.01)
        return int(found)


def test_model_answers_as_real_brokers_do(cluster: str, topic_name: str) -> None:
    for seed in range(SEQUENCES):
        random = Random(seed)
        real = RealBrokers(cluster, f"model-{seed}")
        try:
            pair = Pair(real, f"{topic_name}-{seed}")
            done = []
            for _ in range(STEPS):
                text, found, wanted = pair.step(random)
                done.append(f"{text}: {found}")
                assert found == wanted, f"seed {seed}: the model answers {wanted} to the last of {done}"
            ends = [pair.model.log(Partition(real.topic, number)).end for number in range(PARTITIONS)]
            assert real.ends() == ends, f"seed {seed}: {done}"
        finally:
            real.close()
