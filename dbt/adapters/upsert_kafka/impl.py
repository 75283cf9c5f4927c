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
from dbt.adapters.contracts.connection import AdapterResponse
from dbt.adapters.contracts.relation import RelationConfig
from dbt.adapters.events.logging import AdapterLogger
from dbt.adapters.spark.column import SparkColumn
from dbt.adapters.spark.impl import SparkAdapter

from dbt.adapters.upsert_kafka import append, group_offsets, options, publish, source, topics, views
from dbt.adapters.upsert_kafka.__version__ import version
from dbt.adapters.upsert_kafka.connections import SessionHandle, UpsertKafkaConnectionManager
from dbt.adapters.upsert_kafka.credentials import UpsertKafkaCredentials
from dbt.adapters.upsert_kafka.debug import report
from dbt.adapters.upsert_kafka.errors import DeliveryError
from dbt.adapters.upsert_kafka.kafka_clients import KafkaSettings
from dbt.adapters.upsert_kafka.options.table import KAFKA
from dbt.adapters.upsert_kafka.publish import Publication, Request
from dbt.adapters.upsert_kafka.records import Records
from dbt.adapters.upsert_kafka.relation import UpsertKafkaRelation
from dbt.adapters.upsert_kafka.source import Reading
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
        appends = parsed.materialization == KAFKA and parsed.update_mode == "append"
        may = appends or parsed.missing_keys == "keep"
        return may and views.state(self._handle().spark, relation).get(views.PUBLISHED) == "True"

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
    ) -> AdapterResponse:
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
                registry=self.config.credentials.schema_registry,
                on_schema_change=model["config"].get("on_schema_change") or "ignore",
                folder=UpsertKafkaCredentials.project_root,
                mode="check" if self._is_partial else "preview" if dry_run else "publish",
            )
            appends = parsed.materialization == KAFKA and parsed.update_mode == "append"
            run = append.append if appends else publish.publish
            try:
                return run(handle.spark, handle.spark.sql(sql), request)
            except DeliveryError as error:
                if handle.is_cancelled:
                    # dbt does not show the error of a model that was running when it was interrupted.
                    logger.error(error.msg)
                raise

    @available.parse(lambda *args, **kwargs: {})
    def avro_schemas(self, model: dict[str, Any], parsed: options.ModelOptions, sql: str, topic: str) -> dict[str, str]:
        """The schemas that describe the records of a model's SELECT, for the sides that are avro; nothing is run."""
        spark = self._handle().spark
        with self.connections.exception_handler(sql):
            return publish.checked_layout(spark.sql(sql), model["name"], parsed, topic).avro_schemas()

    def parse_columns_from_information(self, relation: Any) -> list[SparkColumn]:
        # SHOW TABLE EXTENDED tells types as Spark's internals call them, and no nested ones; without it dbt-spark asks DESCRIBE.
        return []

    @available.parse(lambda *args, **kwargs: "")
    def kafka_topic(self, model: dict[str, Any], relation: UpsertKafkaRelation) -> str:
        """What `kafka_topic()` stands for in the SQL of a kafka_source; see `source.query`."""
        parsed = options.parse(model["config"]["materialized"], model["name"], model["config"])
        return source.query(parsed, self._source_layout(model, parsed), views.name(relation.topic_table))

    @available.parse(lambda *args, **kwargs: Reading(_message=""))
    def expose_source(
        self,
        model: dict[str, Any],
        parsed: options.ModelOptions,
        sql: str,
        relation: UpsertKafkaRelation,
        existing: UpsertKafkaRelation | None,
    ) -> Reading:
        """Pin the slice of this run and show it as the relation; see `source.expose`."""
        with self.connections.exception_handler(sql):
            request = source.Request(model["name"], parsed, self._kafka(parsed), relation, existing)
            return source.expose(self._handle().spark, sql, self._source_layout(model, parsed), request)

    @available.parse(lambda *args, **kwargs: None)
    def commit_group_offsets(self, results: list[Any], graph: dict[str, Any]) -> None:
        """Commit the groups of this run's sources, each if all that is downstream of it succeeded; see `group_offsets`."""
        for commit in group_offsets.due(results, graph["nodes"]):
            if commit.failed:
                failed = ", ".join(commit.failed)
                logger.warning(f"group '{commit.group}' of {commit.source} is not committed: {failed} did not succeed")
                continue
            config = graph["nodes"][commit.source]["config"]
            with self._kafka(options.parse(config["materialized"], commit.source, config)).admin() as admin:
                topics.commit(admin, commit.group, commit.slice.ends())
            logger.info(f"group '{commit.group}' is committed to the end of what {commit.source} read")

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

    def _source_layout(self, model: dict[str, Any], parsed: options.ModelOptions) -> Records:
        return source.layout(
            self._handle().spark, model["name"], parsed, model["columns"], self.config.credentials.schema_registry
        )

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
            compacted=parsed.materialization != KAFKA,
        )
