"""The adapter: dbt's entry points, each a call into the module that does the work."""

from __future__ import annotations

import signal
import threading
from multiprocessing.context import SpawnContext
from pathlib import Path
from typing import Any

from dbt.adapters.__about__ import version as base_version
from dbt.adapters.base.impl import AdapterTrackingRelationInfo
from dbt.adapters.base.meta import available
from dbt.adapters.contracts.relation import RelationConfig
from dbt.adapters.events.logging import AdapterLogger
from dbt.adapters.spark.column import SparkColumn
from dbt.adapters.spark.impl import SparkAdapter

from dbt.adapters.upsert_kafka import options, publish, views
from dbt.adapters.upsert_kafka.__version__ import version
from dbt.adapters.upsert_kafka.connections import SessionHandle, UpsertKafkaConnectionManager
from dbt.adapters.upsert_kafka.credentials import UpsertKafkaCredentials
from dbt.adapters.upsert_kafka.debug import report
from dbt.adapters.upsert_kafka.kafka_clients import KafkaSettings
from dbt.adapters.upsert_kafka.publish import Publication, Request
from dbt.adapters.upsert_kafka.relation import UpsertKafkaRelation
from dbt.adapters.upsert_kafka.topics import Wanted

logger = AdapterLogger("upsert_kafka")


def _end_as_by_hand() -> None:
    """Take SIGTERM as Ctrl-C: dbt then cancels what runs, and a transaction is aborted instead of left to time out."""
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, signal.default_int_handler)


class UpsertKafkaAdapter(SparkAdapter):
    """dbt-spark's child: its views, tables and seeds, and topics beside them."""

    ConnectionManager = UpsertKafkaConnectionManager
    Relation = UpsertKafkaRelation

    def __init__(self, config: Any, mp_context: SpawnContext) -> None:
        super().__init__(config, mp_context)
        _end_as_by_hand()
        # `dbt debug` outside a project has a profile only.
        UpsertKafkaCredentials.project_root = Path(getattr(config, "project_root", None) or Path.cwd()).absolute()

    @classmethod
    def get_adapter_run_info(cls, config: RelationConfig) -> AdapterTrackingRelationInfo:
        # dbt would derive the module's name from the class's, which has no underscore.
        return AdapterTrackingRelationInfo(  # type: ignore[abstract]
            adapter_name="upsert_kafka", base_adapter_version=base_version, adapter_version=version, model_adapter_details={}
        )

    @available.parse(lambda *args, **kwargs: None)
    def check_options(self, model: dict[str, Any]) -> options.ModelOptions:
        """Read and check a model's options, before any I/O; warnings are logged."""
        parsed = options.parse(model["config"]["materialized"], model["name"], model["config"])
        for warning in parsed.warnings:
            logger.warning(warning)
        return parsed

    @available.parse(lambda *args, **kwargs: False)
    def is_slice(self, model: dict[str, Any], relation: UpsertKafkaRelation) -> bool:
        """Whether this run's SELECT may be a part of the table: slices are allowed, and the whole was published before."""
        parsed = options.parse(model["config"]["materialized"], model["name"], model["config"])
        return parsed.missing_keys == "keep" and views.state(self._handle().spark, relation).get(views.PUBLISHED) == "True"

    @available.parse(lambda *args, **kwargs: Publication(_message=""))
    def publish(
        self,
        model: dict[str, Any],
        parsed: options.ModelOptions,
        sql: str,
        relation: UpsertKafkaRelation,
        existing: UpsertKafkaRelation | None,
        topic: str,
        full_refresh: bool,
        dry_run: bool,
    ) -> Publication:
        """Make the model's topic equal to its SELECT; see `publish.publish`."""
        handle = self._handle()
        with self.connections.exception_handler(sql):
            request = Request(
                model=model["name"],
                options=parsed,
                topic=topic,
                wanted=self._wanted(parsed),
                kafka=self._kafka(parsed),
                relation=relation,
                existing=existing,
                full_refresh=full_refresh,
                on_schema_change=model["config"].get("on_schema_change") or "ignore",
                folder=UpsertKafkaCredentials.project_root,
                mode="check" if self._is_partial else "preview" if dry_run else "publish",
            )
            return publish.publish(handle.spark, handle.spark.sql(sql), request)

    def parse_columns_from_information(self, relation: Any) -> list[SparkColumn]:
        # SHOW TABLE EXTENDED tells types as Spark's internals call them, and no nested ones; without it dbt-spark asks DESCRIBE.
        return []

    def debug_query(self) -> None:
        credentials = self.config.credentials
        for line in report(self._handle().spark, credentials, KafkaSettings.of(credentials)):
            logger.info(line)

    @property
    def _is_partial(self) -> bool:
        """Whether --empty or --sample cuts what ref() gives, so that no SELECT is what the topic should hold."""
        arguments = getattr(self.config, "args", None)
        return bool(getattr(arguments, "empty", False)) or getattr(arguments, "sample", None) is not None

    def _handle(self) -> SessionHandle:
        return self.connections.get_thread_connection().handle

    def _kafka(self, parsed: options.ModelOptions) -> KafkaSettings:
        return KafkaSettings.of(self.config.credentials, parsed.bootstrap_servers, parsed.properties)

    def _wanted(self, parsed: options.ModelOptions) -> Wanted:
        credentials: UpsertKafkaCredentials = self.config.credentials
        defaults = credentials.topic_defaults
        return Wanted(
            partitions=parsed.partitions if parsed.partitions is not None else defaults.get("partitions"),
            replication_factor=parsed.replication_factor
            if parsed.replication_factor is not None
            else defaults.get("replication_factor"),
            config={str(k): str(v) for k, v in {**(defaults.get("config") or {}), **parsed.topic_config}.items()},
        )
