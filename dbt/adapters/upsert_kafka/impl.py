"""The adapter: dbt's entry points, each a call into the module that does the work."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable
from multiprocessing.context import SpawnContext
from pathlib import Path
from typing import Any

from dbt.adapters.__about__ import version as base_version
from dbt.adapters.base.impl import AdapterTrackingRelationInfo, log_code_execution
from dbt.adapters.base.meta import available
from dbt.adapters.base.relation import BaseRelation
from dbt.adapters.contracts.connection import AdapterResponse
from dbt.adapters.contracts.relation import RelationConfig
from dbt.adapters.events.logging import AdapterLogger
from dbt.adapters.spark.column import SparkColumn
from dbt.adapters.spark.impl import SparkAdapter

from dbt.adapters.upsert_kafka import (
    append,
    contracts,
    documentation,
    grants,
    group_offsets,
    merge,
    options,
    orphans,
    publish,
    python_models,
    seeds,
    source,
    topics,
    views,
)
from dbt.adapters.upsert_kafka.__version__ import version
from dbt.adapters.upsert_kafka.column import UpsertKafkaColumn
from dbt.adapters.upsert_kafka.connections import SessionHandle, UpsertKafkaConnectionManager
from dbt.adapters.upsert_kafka.credentials import UpsertKafkaCredentials
from dbt.adapters.upsert_kafka.debug import report
from dbt.adapters.upsert_kafka.errors import DeliveryError
from dbt.adapters.upsert_kafka.kafka_clients import KafkaSettings
from dbt.adapters.upsert_kafka.options.table import KAFKA
from dbt.adapters.upsert_kafka.publish import Publication, Request
from dbt.adapters.upsert_kafka.records import Records
from dbt.adapters.upsert_kafka.relation import TOPIC_SUFFIX, UpsertKafkaRelation
from dbt.adapters.upsert_kafka.source import Reading
from dbt.adapters.upsert_kafka.sql import quote_literal
from dbt.adapters.upsert_kafka.topics import Wanted

logger = AdapterLogger("upsert_kafka")


def _parsed(model: dict[str, Any]) -> options.ModelOptions:
    return options.parse(model["config"]["materialized"], model["name"], contracts.with_key(model))


def _comments(model: dict[str, Any]) -> views.Comments:
    asked = model["config"].get("persist_docs") or {}
    texts = {name: column.get("description") or "" for name, column in model["columns"].items()}
    return views.Comments(
        model.get("description") or "" if asked.get("relation") else "",
        {name: text for name, text in texts.items() if text} if asked.get("columns") else {},
    )


def _end_as_by_hand() -> None:
    """Take SIGTERM as Ctrl-C: dbt then cancels what runs, and a transaction is aborted instead of left to time out."""
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, signal.default_int_handler)


class UpsertKafkaAdapter(SparkAdapter):
    """dbt-spark's child: its views, tables and seeds, and topics beside them."""

    ConnectionManager = UpsertKafkaConnectionManager
    Relation = UpsertKafkaRelation
    Column = UpsertKafkaColumn

    def __init__(self, config: Any, mp_context: SpawnContext) -> None:
        super().__init__(config, mp_context)
        self._publishers: dict[tuple[str, str], Any] = {}
        _end_as_by_hand()
        # `dbt debug` outside a project has a profile only.
        UpsertKafkaCredentials.project_root = Path(getattr(config, "project_root", None) or Path.cwd()).absolute()

    @classmethod
    def get_adapter_run_info(cls, config: RelationConfig) -> AdapterTrackingRelationInfo:
        # dbt would derive the module's name from the class's, which has no underscore.
        return AdapterTrackingRelationInfo(  # type: ignore[abstract]
            adapter_name="upsert_kafka", base_adapter_version=base_version, adapter_version=version, model_adapter_details={}
        )

    def pre_model_hook(self, config: Any) -> None:
        """The profile's file_format, for a node that names none; a unique_key on a format that can merge means merge."""
        self._tell_of_left_topic(config.model)
        node_config = getattr(config.model, "config", None)
        file_format = self.config.credentials.file_format
        if node_config is None or file_format is None:
            return
        if node_config.get("file_format") is None:
            node_config["file_format"] = file_format
        merges = node_config.get("unique_key") and node_config["file_format"] == "delta"
        if merges and node_config.get("materialized") == "incremental" and not node_config.get("incremental_strategy"):
            node_config["incremental_strategy"] = "merge"

    @available.parse(lambda *args, **kwargs: None)
    def check_options(self, model: dict[str, Any]) -> options.ModelOptions:
        """Read and check a model's options, before any I/O; warnings are logged."""
        parsed = _parsed(model)
        for warning in parsed.warnings:
            logger.warning(warning)
        return parsed

    @available.parse(lambda *args, **kwargs: False)
    def is_slice(self, model: dict[str, Any], relation: UpsertKafkaRelation) -> bool:
        """Whether this run's SELECT may be a part of the table: slices are allowed, and the whole was published before."""
        parsed = _parsed(model)
        may = parsed.appends or parsed.missing_keys == "keep"
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
                not_null=contracts.constraints(model).not_null,
                comments=_comments(model),
                project=self.config.project_name,
                mode="check" if self._is_partial else "preview" if dry_run else "publish",
            )
            run = append.append if parsed.appends else publish.publish
            spark = handle.spark
            rows = python_models.rows(spark, model["name"], sql) if model["language"] == "python" else spark.sql(sql)
            try:
                return run(spark, rows, request)
            except DeliveryError as error:
                if handle.is_cancelled:
                    # dbt does not show the error of a model that was running when it was interrupted.
                    logger.error(error.msg)
                raise

    @available
    def quote_literal(self, text: str) -> str:
        """A string literal for a macro's SQL."""
        return quote_literal(text)

    @log_code_execution
    def submit_python_job(self, parsed_model: dict[str, Any], compiled_code: str) -> AdapterResponse:
        """Run a Python model that becomes a table; see `python_models`."""
        with self.connections.exception_handler(compiled_code):
            python_models.run(self._handle().spark, parsed_model["name"], compiled_code)
        return AdapterResponse(_message="OK")

    @available.parse(lambda *args, **kwargs: None)
    def load_seed(self, relation: UpsertKafkaRelation, table: Any, types: list[str]) -> None:
        """Insert a seed's rows; see `seeds`."""
        with self.connections.exception_handler(f"load {relation}"):
            seeds.load(self._handle().spark, views.name(relation), table, types)

    @classmethod
    def convert_integer_type(cls, agate_table: Any, col_idx: int) -> str:
        return seeds.integer_type(agate_table, col_idx)

    @classmethod
    def convert_number_type(cls, agate_table: Any, col_idx: int) -> str:
        found = super().convert_number_type(agate_table, col_idx)
        return seeds.integer_type(agate_table, col_idx) if found == "bigint" else found

    @classmethod
    def convert_time_type(cls, agate_table: Any, col_idx: int) -> str:
        # Spark has no type for a time of day.
        return "string"

    @available.parse(lambda *args, **kwargs: {})
    def avro_schemas(self, model: dict[str, Any], parsed: options.ModelOptions, sql: str, topic: str) -> dict[str, str]:
        """The schemas that describe the records of a model's SELECT, for the sides that are avro; nothing is run."""
        spark = self._handle().spark
        with self.connections.exception_handler(sql):
            return publish.checked_layout(spark.sql(sql), model["name"], parsed, topic).avro_schemas()

    def get_columns_in_relation(self, relation: BaseRelation) -> list[SparkColumn]:
        # With --empty and --sample a ref() is a subquery, which can't be described.
        found = super().get_columns_in_relation(relation.replace(limit=None, event_time_filter=None))
        return [UpsertKafkaColumn(**vars(column)) for column in found]

    @available.parse(lambda *args, **kwargs: "")
    def merge_sql(
        self,
        model: dict[str, Any],
        table: UpsertKafkaRelation,
        rows: UpsertKafkaRelation,
        updated: list[str] | None,
        predicates: list[str] | None,
    ) -> str:
        """How an incremental model's rows get into its table; see `merge`."""
        config = model["config"]
        of_table, of_rows = ([c.name for c in self.get_columns_in_relation(r)] for r in (table, rows))
        may_lack = config.get("on_schema_change") == "append_new_columns"
        return merge.statement(
            model["name"], str(table), str(rows), of_table, of_rows, config.get("unique_key"), updated, predicates or [], may_lack
        )

    def parse_columns_from_information(self, relation: Any) -> list[SparkColumn]:
        # SHOW TABLE EXTENDED tells types as Spark's internals call them, and no nested ones; without it dbt-spark asks DESCRIBE.
        return []

    def get_catalog(self, relation_configs: Iterable[Any], used_schemas: frozenset[tuple[str, str]]) -> Any:
        nodes = list(relation_configs)
        self._publishers = {
            (node.schema, node.identifier): node for node in nodes if node.config.get("materialized") in ("upsert_kafka", KAFKA)
        }
        return super().get_catalog(nodes, used_schemas)

    def _get_columns_for_catalog(self, relation: Any) -> Iterable[dict[str, Any]]:
        spark = self._handle().spark
        publisher = self._publishers.get((relation.schema, relation.identifier))

        def kafka(servers: str | None) -> KafkaSettings:
            return KafkaSettings.of(self.config.credentials, servers)

        with self.connections.exception_handler(f"describe {relation}"):
            parsed = _parsed(publisher.to_dict()) if publisher else None
            return list(documentation.columns(spark, relation, kafka, parsed))

    @available.parse(lambda *args, **kwargs: "")
    def kafka_topic(self, model: dict[str, Any], relation: UpsertKafkaRelation) -> str:
        """What `kafka_topic()` stands for in the SQL of a kafka_source; see `source.query`."""
        parsed = _parsed(model)
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

    @available.parse(lambda *args, **kwargs: [])
    def list_topics(self, owned: list[dict[str, Any]]) -> list[str]:
        """One line per model that writes to a topic."""
        lines = []
        for entry in sorted(owned, key=lambda entry: str(entry["node"]["name"])):
            node, topic = entry["node"], entry["topic"]
            with self._kafka(_parsed(node)).admin() as admin:
                found = topics.statistics(admin, topic)
            state = views.state(self._handle().spark, self.Relation.create(schema=node["schema"], identifier=node["alias"]))
            lines.append(f"{node['name']}: {documentation.line(topic, found, state)}")
        return lines or ["no model of this project writes to a topic"]

    @available.parse(lambda *args, **kwargs: [])
    def orphan_topics(self, owned: list[dict[str, Any]], graph: dict[str, Any], dry_run: bool) -> list[str]:
        """One line per topic that earlier runs made and no model owns; without `dry_run` they are deleted, see `orphans`."""
        spark, project = self._handle().spark, self.config.project_name
        names = {(node["schema"], node["alias"]) for node in graph["nodes"].values() if node["package_name"] == project}
        schemas = {schema for schema, _ in names} | {self.config.credentials.schema}
        lines = []
        for orphan in list(orphans.find(spark, schemas, project, {entry["topic"] for entry in owned})):
            lines.append(f"topic '{orphan.topic}': made for {orphan.relation}, which has no model now or another topic")
            if not dry_run:
                has_model = (orphan.relation.schema, orphan.relation.identifier) in names
                with KafkaSettings.of(self.config.credentials, orphan.servers).admin() as admin:
                    lines.append(orphans.drop(spark, admin, orphan, has_model))
        return lines or ["no orphans: every topic that this project made has its model"]

    @available.parse(lambda *args, **kwargs: None)
    def apply_topic_grants(self, model: dict[str, Any], parsed: options.ModelOptions, topic: str) -> None:
        """Who may read the topic; see `grants`."""
        principals = grants.check(model["name"], model["config"].get("grants") or {})
        if principals is not None and not self._is_partial:
            with self._kafka(parsed).admin() as admin:
                for warning in grants.apply(admin, topic, principals):
                    logger.warning(f"{model['name']}: {warning}")

    def debug_query(self) -> None:
        credentials = self.config.credentials
        for line in report(self._handle().spark, credentials, KafkaSettings.of(credentials)):
            logger.info(line)

    @property
    def _is_partial(self) -> bool:
        """Whether --empty or --sample cuts what ref() gives, so that no SELECT is what the topic should hold."""
        arguments = getattr(self.config, "args", None)
        return bool(getattr(arguments, "empty", False)) or getattr(arguments, "sample", None) is not None

    def _tell_of_left_topic(self, node: Any) -> None:
        """A model that was a topic and is something else now leaves its topic as it is; say so once."""
        kind = getattr(getattr(node, "config", None), "materialized", None)
        if kind not in ("view", "table", "incremental"):
            return
        existing = self.get_relation(None, node.schema, node.alias)  # type: ignore[arg-type]
        if isinstance(existing, UpsertKafkaRelation) and f"{node.alias}{TOPIC_SUFFIX}" in (existing.information or ""):
            topic = views.state(self._handle().spark, existing).get(views.TOPIC)
            if topic is not None:
                logger.warning(
                    f"{node.name}: is a {kind} now; its topic '{topic}' is left as it is (run-operation orphan_topics)"
                )

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
