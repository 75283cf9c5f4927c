"""The adapter: the methods that dbt and the macros call. Each one calls the package that does the work.

Translates dbt's nodes, profile and flags into the objects of those packages.
"""

from __future__ import annotations

import atexit
import gc
from collections.abc import Iterable, Mapping
from dataclasses import replace
from multiprocessing.context import SpawnContext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dbt.adapters.base.meta import available
from dbt.adapters.base.relation import BaseRelation
from dbt.adapters.contracts.connection import AdapterResponse
from dbt.adapters.events.logging import AdapterLogger
from dbt.adapters.spark.column import SparkColumn

from dbt.adapters.upsert_kafka import catalog, dbt_internals, late_imports, options
from dbt.adapters.upsert_kafka.column import UpsertKafkaColumn
from dbt.adapters.upsert_kafka.connections import UpsertKafkaConnectionManager, end_on_signals
from dbt.adapters.upsert_kafka.credentials import UpsertKafkaCredentials
from dbt.adapters.upsert_kafka.dbt_warnings import warn, warn_about
from dbt.adapters.upsert_kafka.errors import DeliveryError, GuardError
from dbt.adapters.upsert_kafka.operations.adapter import model_options
from dbt.adapters.upsert_kafka.operations.restoring_adapter import comments_of
from dbt.adapters.upsert_kafka.operations.sharing_adapter import SharingAdapter
from dbt.adapters.upsert_kafka.options import model_topics, variables
from dbt.adapters.upsert_kafka.options.model_topics import ModelTopics
from dbt.adapters.upsert_kafka.options.table import KAFKA, SINKS
from dbt.adapters.upsert_kafka.plan import current
from dbt.adapters.upsert_kafka.plan.adapter import PlanningAdapter
from dbt.adapters.upsert_kafka.publish import contracts
from dbt.adapters.upsert_kafka.relation import UpsertKafkaRelation
from dbt.adapters.upsert_kafka.resident import link
from dbt.adapters.upsert_kafka.spark import merge, seeds, table_formats, time_zone
from dbt.adapters.upsert_kafka.sql import quote_literal
from dbt.adapters.upsert_kafka.streaming.adapter import StreamsAdapter

if TYPE_CHECKING:
    from dbt.adapters.upsert_kafka.formats.records import Records
    from dbt.adapters.upsert_kafka.operations.transactional_groups import Command
    from dbt.adapters.upsert_kafka.publish.request import Request
    from dbt.adapters.upsert_kafka.sinks import GroupCommit
    from dbt.adapters.upsert_kafka.source.source import Reading
    from dbt.adapters.upsert_kafka.spark.handle import SessionHandle

logger = AdapterLogger("upsert_kafka")

# At its end Python searches all objects for garbage, which takes 0.4 s with those of dbt. Frozen objects are not searched.
atexit.register(gc.freeze)

SPARK_COMMANDS = ("build", "clone", "generate", "run", "seed", "show", "snapshot", "test")
"""dbt commands that need Spark, whatever the project is. It starts while dbt parses the project."""


class UpsertKafkaAdapter(PlanningAdapter, SharingAdapter, StreamsAdapter):
    """dbt-spark's adapter with topics: its views, tables, seeds and snapshots work in the same project."""

    ConnectionManager = UpsertKafkaConnectionManager
    Relation = UpsertKafkaRelation
    Column = UpsertKafkaColumn

    def __init__(self, config: Any, mp_context: SpawnContext) -> None:
        super().__init__(config, mp_context)
        self._publishers: dict[tuple[str, str], Any] = {}
        self._model_topics: ModelTopics | None = None
        UpsertKafkaConnectionManager.relations = self
        end_on_signals()
        dbt_internals.declare_enforced_constraints(SINKS)
        # `dbt debug` outside of a project has only a profile.
        UpsertKafkaCredentials.project_root = Path(getattr(config, "project_root", None) or Path.cwd()).absolute()
        link.report_idle_minutes(config.credentials.resident_idle_minutes)
        if dbt_internals.command_of(config) in SPARK_COMMANDS:
            from dbt.adapters.upsert_kafka.spark import session

            session.start_early(config.credentials, then=self._read_state_early)
            late_imports.begin()

    def pre_model_hook(self, config: Any) -> None:
        """Set defaults of the node, and refuse a file format that it can't have; see `table_formats`."""
        node = dbt_internals.node_of(config)
        self._warn_about_former_topic(node)
        node_config = getattr(node, "config", None)
        if node_config is not None:
            table_formats.set_defaults(str(node.resource_type), node.name, node_config, self.config.credentials.file_format)

    @available.parse(lambda *args, **kwargs: None)
    def check_options(self, model: dict[str, Any]) -> options.ModelOptions:
        """Parse and check a model's options and the adapter's variables before any I/O, and log their warnings."""
        packages = {node.package_name for node in dbt_internals.manifest_nodes(self)}
        parsed = model_options(model, variables.problems(*dbt_internals.variables(self.config), packages))
        warn(*parsed.warnings)
        if parsed.materialization in SINKS:
            warn_about(model["name"], contracts.warnings(model, parsed.unique_key))
        return parsed

    def inspected_project(self, owned: list[dict[str, Any]]) -> Any:
        """The project for the commands of `inspection`: its models with their topics, and the profile's cluster.

        Args:
            owned: the result of the macro `_topics_of_models`.
        """
        from dbt.adapters.upsert_kafka.inspection.project import Project, ProjectModel

        nodes = [entry["node"] for entry in owned]
        models = [
            ProjectModel.of(node, topic, model_options(node))
            for node, topic in zip(nodes, self._topic_models(owned), strict=True)
        ]
        credentials: UpsertKafkaCredentials = self.config.credentials
        return Project(self._environment(), self._cluster(), credentials.schema_registry, tuple(models))

    @available
    def topic_name(self, name: str) -> str:
        """Return the full name of a topic: the name from generate_topic_name with the profile's prefix and suffix."""
        credentials: UpsertKafkaCredentials = self.config.credentials
        return credentials.topic_name(str(name).strip())

    @available.parse(lambda *args, **kwargs: None)
    def check_topic_is_unique(self, model: dict[str, Any], graph: dict[str, Any], generate_topic_name: Any) -> None:
        """Refuse a model whose topic another model of the project has too; see `model_topics`."""
        self._topics_of_models(graph, generate_topic_name).check(model["unique_id"])

    @available.parse(lambda *args, **kwargs: False)
    def is_slice(self, model: dict[str, Any], topic: str) -> bool:
        """Whether the SELECT may be a part of the table: the options allow it, and the whole table was published before."""
        parsed = model_options(model)
        # A stream reads new events by itself, and its SELECT must not change between two runs.
        if parsed.streams or not (parsed.appends or parsed.missing_keys == "keep"):
            return False
        from dbt.adapters.upsert_kafka.publish import memory

        return memory.is_published(self._kafka(parsed), self._state_settings(), topic, parsed.appends)

    @available.parse(lambda *args, **kwargs: AdapterResponse(_message=""))
    def publish(
        self,
        model: dict[str, Any],
        sql: str,
        relation: UpsertKafkaRelation,
        topic: str,
        full_refresh: bool,
        dry_run: bool,
        command: Command,
    ) -> AdapterResponse:
        """Make the model's topic equal to its SELECT; see `pipeline.publish`.

        Args:
            command: of `command`.
        """
        from dbt.adapters.upsert_kafka.publish import append, configuration, pipeline
        from dbt.adapters.upsert_kafka.publish.request import Request, topic_settings
        from dbt.adapters.upsert_kafka.spark import python_models

        handle = self._handle()
        spark = handle.spark
        parsed, constraints = self._sink_options(model), contracts.constraints(model)
        self._check_listing(model["name"], self._kafka(parsed))
        with self.connections.exception_handler(sql):
            request = Request(
                model=model["name"],
                options=parsed,
                topic=topic,
                topic_settings=topic_settings(parsed, self.config.credentials.topic_defaults),
                kafka=self._kafka(parsed),
                relation=relation,
                existing=self._existing(relation.schema, relation.identifier),
                full_refresh=full_refresh,
                registry=self.config.credentials.schema_registry,
                on_schema_change=model["config"].get("on_schema_change") or "ignore",
                folder=UpsertKafkaCredentials.project_root,
                not_null=constraints.not_null,
                checks=constraints.checks,
                comments=comments_of(model),
                time_zone=str(spark.conf.get(time_zone.SETTING)),
                owner=self._owner(model),
                run=self._run(),
                state=self._state_settings(),
                mode="check" if dbt_internals.is_partial_run(self.config) else "preview" if dry_run else "publish",
                sql=sql,
                on_configuration_change=configuration.chosen(model),
                readers=self._principals(model),
                other_topics=self._model_topics.others(model["unique_id"], self.topic_name)
                if self._model_topics
                else frozenset(),
            )
            request = current.adjusted(model["unique_id"], request)
            if parsed.streams and request.mode != "check":
                return self._publish_stream(model, sql, request)
            run = append.append if parsed.appends else pipeline.publish
            groups = self._transactional_groups(model, request, command)
            rows = python_models.rows(spark, model["name"], sql) if model["language"] == "python" else spark.sql(sql)
            if groups != self._transactional_groups(model, request, command):
                raise GuardError(
                    f"model {model['name']}: a source that it reads was run by another command at the same time. "
                    "Nothing was written. Run again."
                )
            try:
                return run(spark, rows, replace(request, groups=groups))
            except DeliveryError as error:
                if handle.is_cancelled:
                    # dbt does not show the error of a model that was interrupted.
                    logger.error(error.msg)
                raise

    @available.parse(lambda *args, **kwargs: None)
    def command(self, graph: dict[str, Any], selected_resources: list[str]) -> Command:
        """Return what `publish` needs to know of this dbt command."""
        from dbt.adapters.upsert_kafka.operations.transactional_groups import Command

        return Command(graph["nodes"], selected_resources, dbt_internals.is_deferred_run(self.config), self._group_source)

    @available
    def quote_literal(self, text: str) -> str:
        """Return a string literal for the SQL of a macro."""
        return quote_literal(text)

    @dbt_internals.log_code_execution
    def submit_python_job(self, parsed_model: dict[str, Any], compiled_code: str) -> AdapterResponse:
        """Run a Python model that is materialized as a table; see `python_models`."""
        from dbt.adapters.upsert_kafka.spark import python_models

        with self.connections.exception_handler(compiled_code):
            python_models.run(self._handle().spark, parsed_model["name"], compiled_code)
        return AdapterResponse(_message="OK")

    @available.parse(lambda *args, **kwargs: None)
    def load_seed(self, relation: UpsertKafkaRelation, table: Any, column_types: dict[str, str]) -> None:
        """Insert a seed's rows; see `seeds`.

        Args:
            column_types: of the seed's config, for some or all columns.
        """
        types = [column_types.get(name, self.convert_type(table, i)) for i, name in enumerate(table.column_names)]
        with self.connections.exception_handler(f"load {relation}"):
            seeds.load(self._handle().spark, catalog.name(relation), table, types)

    @classmethod
    def convert_integer_type(cls, agate_table: Any, col_idx: int) -> str:
        return seeds.integer_type(agate_table, col_idx)

    @classmethod
    def convert_number_type(cls, agate_table: Any, col_idx: int) -> str:
        spark_type = super().convert_number_type(agate_table, col_idx)
        return seeds.integer_type(agate_table, col_idx) if spark_type == "bigint" else spark_type

    @classmethod
    def convert_time_type(cls, agate_table: Any, col_idx: int) -> str:
        # Spark has no type for a time of day.
        return "string"

    @available.parse(lambda *args, **kwargs: {})
    def avro_schemas(self, model: dict[str, Any], sql: str, topic: str) -> dict[str, str]:
        """Return the Avro schemas of key and value, if these are avro; the SELECT is analysed, not run."""
        from dbt.adapters.upsert_kafka.publish import encode

        spark = self._handle().spark
        with self.connections.exception_handler(sql):
            return encode.checked_layout(spark.sql(sql), model["name"], self._sink_options(model), topic).avro_schemas()

    def get_columns_in_relation(self, relation: BaseRelation) -> list[SparkColumn]:
        columns = super().get_columns_in_relation(dbt_internals.without_ref_filter(relation))
        return [UpsertKafkaColumn(**vars(column)) for column in columns]

    @available.parse(lambda *args, **kwargs: "")
    def merge_sql(
        self,
        model: dict[str, Any],
        table: UpsertKafkaRelation,
        rows: UpsertKafkaRelation,
        update_columns: list[str] | None,
        predicates: list[str] | None,
    ) -> str:
        """Return the MERGE of an incremental model; see `merge`."""
        config = model["config"]
        of_table, of_rows = (
            merge.Columns(str(relation), [column.name for column in self.get_columns_in_relation(relation)])
            for relation in (table, rows)
        )
        return merge.statement(
            merge.Merge(
                model=model["name"],
                table=of_table,
                rows=of_rows,
                unique_key=config.get("unique_key"),
                update_columns=update_columns,
                predicates=predicates or (),
                allow_missing_columns=config.get("on_schema_change") == "append_new_columns",
            )
        )

    def get_catalog(self, relation_configs: Iterable[Any], used_schemas: frozenset[tuple[str, str]]) -> Any:
        nodes = list(relation_configs)
        self._publishers = {
            (node.schema, node.identifier): node for node in nodes if node.config.get("materialized") in ("upsert_kafka", KAFKA)
        }
        return super().get_catalog(nodes, used_schemas)

    def catalog_columns(self, relation: Any) -> Iterable[dict[str, Any]]:
        from dbt.adapters.upsert_kafka.operations import documentation
        from dbt.adapters.upsert_kafka.operations.documentation import Publisher

        spark = self._handle().spark
        publisher = self._publishers.get((relation.schema, relation.identifier))
        with self.connections.exception_handler(f"describe {relation}"):
            parsed = model_options(publisher.to_dict()) if publisher else None
            found = Publisher(parsed, self._kafka(parsed), self._environment()) if parsed else None
            return list(documentation.columns(spark, relation, found))

    @available.parse(lambda *args, **kwargs: "")
    def kafka_topic(
        self, model: dict[str, Any], relation: UpsertKafkaRelation, graph: dict[str, Any], generate_topic_name: Any
    ) -> str:
        """Return the subquery for `kafka_topic()` in the SQL of a kafka_source; see `source.query`."""
        from dbt.adapters.upsert_kafka.source import source

        parsed = self._source_options(model, graph, generate_topic_name)
        return source.query(parsed, self._source_layout(model, parsed), catalog.name(relation.topic_table))

    @available.parse(lambda *args, **kwargs: AdapterResponse(_message=""))
    def expose_source(
        self,
        model: dict[str, Any],
        sql: str,
        relation: UpsertKafkaRelation,
        graph: dict[str, Any],
        generate_topic_name: Any,
        dry_run: Any,
    ) -> Reading:
        """Pin the offsets of this run and create the relation over them; see `source.expose`.

        Args:
            dry_run: the variable upsert_kafka_dry_run.
        """
        from dbt.adapters.upsert_kafka.source import source

        parsed = self._source_options(model, graph, generate_topic_name)
        writes_nothing = variables.is_dry_run(dry_run) or dbt_internals.is_partial_run(self.config)
        with self.connections.exception_handler(sql):
            request = source.Request(
                model=model["name"],
                options=parsed,
                kafka=self._kafka(parsed),
                relation=relation,
                existing=self._existing(relation.schema, relation.identifier),
                owner=None if writes_nothing else self._owner(model),
            )
            if current.is_planning():
                return current.read(model["unique_id"], *source.preview(self._handle().spark, sql, request))
            return source.expose(self._handle().spark, sql, self._source_layout(model, parsed), request)

    @available.parse(lambda *args, **kwargs: None)
    def check_topic_grants(self, model: dict[str, Any], topic: str) -> None:
        """Check the model's `grants` before anything is written, and warn if the cluster has no ACLs; see `acls`."""
        if self._principals(model) is not None:
            from dbt.adapters.upsert_kafka.kafka_client import acls

            with self._kafka(model_options(model)).admin() as admin:
                warn_about(model["name"], acls.warnings(admin, topic))

    @available.parse(lambda *args, **kwargs: None)
    def apply_topic_grants(self, model: dict[str, Any], topic: str) -> None:
        """Apply the model's `grants` to the topic; see `acls`."""
        principals = self._principals(model)
        if principals is not None:
            from dbt.adapters.upsert_kafka.kafka_client import acls

            with self._kafka(model_options(model)).admin() as admin:
                acls.apply(admin, topic, principals)

    def _principals(self, model: Mapping[str, Any]) -> tuple[str, ...] | None:
        """Who may read the model's topic; None if the model has no `grants`, or if this run writes nothing."""
        from dbt.adapters.upsert_kafka.kafka_client import acls

        principals = acls.check(model["name"], model["config"].get("grants") or {})
        return None if dbt_internals.is_partial_run(self.config) else principals

    def debug_query(self) -> None:
        from dbt.adapters.upsert_kafka.debug import report

        credentials = self.config.credentials
        for line in report(self._handle().spark, credentials, self._cluster()):
            logger.info(line)

    def _warn_about_former_topic(self, node: Any) -> None:
        """Warn if the model wrote to a topic before and is a view or table now: its topic stays."""
        kind = getattr(getattr(node, "config", None), "materialized", None)
        if kind not in ("view", "table", "incremental"):
            return
        existing = self._existing(node.schema, node.alias)
        # The catalog has names in lower case, and the text of the view as the model wrote it.
        if (
            not isinstance(existing, UpsertKafkaRelation)
            or catalog.name(existing.topic_table).lower() not in dbt_internals.view_text(existing).lower()
        ):
            return
        from dbt.adapters.upsert_kafka.operations.environment import former_topic

        topic = former_topic(self._environment(), self._cluster(), node.schema, node.alias)
        if topic is not None:
            warn(
                f"{node.name}: is a {kind} now; its topic '{topic}' is not deleted. "
                "Find such topics with dbt run-operation orphan_topics."
            )

    def _existing(self, schema: Any, identifier: Any) -> Any:
        """The relation that has this name now, from dbt's cache; None if there is none."""
        return self.get_relation(None, schema, identifier)  # type: ignore[arg-type]  # Spark has no databases above schemas

    def _transactional_groups(self, model: Mapping[str, Any], request: Request, command: Command) -> tuple[GroupCommit, ...]:
        """The consumer groups that the model's transaction commits; see `transactional_groups`."""
        if request.mode != "publish" or not request.transactional_id:
            return ()
        from dbt.adapters.upsert_kafka.operations.transactional_groups import transactional_groups

        return transactional_groups(model["unique_id"], request.kafka, command)

    def _model_options(self, model: Mapping[str, Any]) -> options.ModelOptions:
        return model_options(model)

    def _sink_options(self, model: Mapping[str, Any]) -> options.ModelOptions:
        return model_topics.with_full_subjects(model_options(model), self.topic_name)

    def _source_options(self, model: Mapping[str, Any], graph: dict[str, Any], generate_topic_name: Any) -> options.ModelOptions:
        parsed = model_options(model)
        if self.topic_name("") == "":
            return parsed
        return self._topics_of_models(graph, generate_topic_name).full_source(parsed, self.topic_name)

    def _topics_of_models(self, graph: dict[str, Any], generate_topic_name: Any) -> ModelTopics:
        """The topics of the project's models, computed once per command. Several threads may compute the same value at once."""
        if self._model_topics is None:
            self._model_topics = ModelTopics.of(graph["nodes"], model_options, generate_topic_name)
        return self._model_topics

    def _handle(self) -> SessionHandle:
        return self.connections.get_thread_connection().handle

    def _source_layout(self, model: dict[str, Any], parsed: options.ModelOptions) -> Records:
        from dbt.adapters.upsert_kafka.source import source

        return source.layout(
            self._handle().spark, model["name"], parsed, model["columns"], self.config.credentials.schema_registry
        )
