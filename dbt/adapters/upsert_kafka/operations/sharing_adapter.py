"""The part of the adapter that lets the tests of a command share one read of a topic.

Translates dbt's graph and selection for `catalog.shared_reads`.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Mapping
from multiprocessing.context import SpawnContext
from typing import TYPE_CHECKING, Any

from dbt.adapters.base.meta import available
from dbt.adapters.contracts.relation import RelationType
from dbt.adapters.events.logging import AdapterLogger

from dbt.adapters.upsert_kafka.catalog import tested_columns
from dbt.adapters.upsert_kafka.errors import UpsertKafkaError
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.operations.adapter import OperationsAdapter, model_options
from dbt.adapters.upsert_kafka.options.model_topics import ModelTopics
from dbt.adapters.upsert_kafka.relation import UpsertKafkaRelation

if TYPE_CHECKING:
    from dbt.adapters.upsert_kafka.catalog.shared_reads import SharedReads
    from dbt.adapters.upsert_kafka.kafka_client.topics import Topic

logger = AdapterLogger("upsert_kafka")


class SharingAdapter(OperationsAdapter):
    """Gives tests the rows that another test of the same command has read."""

    def __init__(self, config: Any, mp_context: SpawnContext) -> None:
        super().__init__(config, mp_context)
        self._shared_reads: SharedReads | None = None
        self._sharing = threading.Lock()
        self._thread = threading.local()
        """`test`: the unique_id of the test that the thread runs."""

    @abstractmethod
    def _topics_of_models(self, graph: dict[str, Any], generate_topic_name: Any) -> ModelTopics:
        """The topics of the project's models."""

    @abstractmethod
    def topic_name(self, name: str) -> str:
        """Return the full name of a topic."""

    @available.parse(lambda model, sql, *args: sql)
    def share_reads(self, model: dict[str, Any], sql: str, graph: dict[str, Any], selected: list[str], topic_name: Any) -> str:
        """Return the SQL of a test, with stored rows in place of the topics that other tests of this command read too.

        Args:
            model: the test.
            selected: dbt's `selected_resources`.
            topic_name: the macro generate_topic_name.
        """
        if self.config.credentials.remote:
            return sql
        nodes, of_models = graph["nodes"], self._topics_of_models(graph, topic_name).by_model
        read = [unique_id for unique_id in model["depends_on"]["nodes"] if unique_id in of_models]
        if not read:
            return sql
        from dbt.adapters.upsert_kafka.catalog.shared_reads import ReadTopic, SharedReads
        from dbt.adapters.upsert_kafka.spark import shared_jvm

        with self._sharing:
            self._shared_reads = reads = self._shared_reads or SharedReads()
        self._thread.test = model["unique_id"]
        tests = [nodes[unique_id] for unique_id in selected if unique_id.startswith("test.") and unique_id in nodes]
        tested = []
        for unique_id in read:
            node, of_node = nodes[unique_id], [test for test in tests if unique_id in test["depends_on"]["nodes"]]
            relation = UpsertKafkaRelation.create(schema=node["schema"], identifier=node["alias"], type=RelationType.View)
            position = self._position_of(node, of_models[unique_id][1])
            ids, columns = frozenset(test["unique_id"] for test in of_node), tested_columns.expected(of_node, unique_id)
            tested.append(ReadTopic(relation, ids, position, columns))
        spark = self._handle().spark
        # Another command would get these rows too: from the view of this name, or where it reads the same relation.
        return sql if shared_jvm.shares_state() else reads.sql_of(spark, sql, tested)

    def release_connection(self) -> None:
        """dbt calls it after each node, in the node's thread."""
        test, self._thread.test = getattr(self._thread, "test", None), None
        if test is not None and self._shared_reads is not None:
            self._shared_reads.end(test)
        super().release_connection()

    def cleanup_connections(self) -> None:
        """dbt calls it at the end of a command."""
        if self._shared_reads is not None:
            self._shared_reads.close()
        super().cleanup_connections()

    def _position_of(self, node: Mapping[str, Any], topic: str) -> Callable[[], Topic | None]:
        from kafka.errors import KafkaError

        kafka, full_name = self._kafka(model_options(node)), self.topic_name(topic)

        def position() -> Topic | None:
            try:
                return _described(kafka, full_name)
            except (UpsertKafkaError, KafkaError) as error:
                # The test reads the topic and reports the reason.
                logger.debug(f"Topic '{full_name}' could not be described for a test: {error!r}")
                return None

        return position


def _described(kafka: KafkaSettings, topic: str) -> Topic | None:
    from dbt.adapters.upsert_kafka.kafka_client import topics

    with kafka.admin() as admin:
        return topics.describe(admin, topic)
