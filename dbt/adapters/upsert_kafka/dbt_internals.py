"""The only module that uses private or undocumented parts of dbt-core, dbt-adapters and dbt-spark.

Each entry says why it exists and which public way is missing. tests/unit/test_dbt_internals.py fails with a sentence if a
release of dbt moved one of these parts.
"""

from __future__ import annotations

import logging
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from typing import Any

from dbt.adapters.__about__ import version as base_version
from dbt.adapters.base.impl import AdapterTrackingRelationInfo, log_code_execution
from dbt.adapters.base.relation import BaseRelation
from dbt.adapters.contracts.relation import RelationConfig
from dbt.adapters.spark.connections import SparkConnectionManager
from dbt.adapters.spark.impl import SparkAdapter
from dbt_common.events.event_manager_client import get_event_manager
from dbt_common.invocation import get_invocation_id

from dbt.adapters.upsert_kafka.__version__ import version

__all__ = [
    "ConnectionManagerHooks",
    "SparkAdapterHooks",
    "after_profile_of_init",
    "call_python_model",
    "command_of",
    "compile_schemas",
    "compile_serializers",
    "declare_enforced_constraints",
    "hide_stack_trace",
    "invocation_id",
    "is_deferred_run",
    "is_partial_run",
    "log_code_execution",
    "manifest_nodes",
    "multi_option",
    "node_of",
    "stdout_handlers",
    "target_name",
    "uses_colors",
    "variables",
    "view_text",
    "wants_progress",
    "without_ref_filter",
]

STDOUT_LOG = "stdout_log"
"""dbt's name of the logger that writes to the terminal."""

# log_code_execution
# Why: `submit_python_job` of dbt's base adapter logs the code and its duration with this decorator. An override must do the same.
# Missing: the decorator is not documented.


class SparkAdapterHooks(SparkAdapter):
    """Methods of dbt's adapters that are overridden although they are private or not documented."""

    @abstractmethod
    def catalog_columns(self, relation: Any) -> Iterable[dict[str, Any]]:
        """Return one row per column of the relation, as the catalog of `dbt docs` has them."""

    def _get_columns_for_catalog(self, relation: Any) -> Iterable[dict[str, Any]]:
        """Return the rows of `catalog_columns`.

        Why: dbt-spark parses the text of SHOW TABLE EXTENDED, which has no nested types and no comments, and no adapter can add
        statistics to it.
        Missing: the smallest public method is `get_catalog`, which lists relations and starts threads.
        """
        return self.catalog_columns(relation)

    @classmethod
    def get_adapter_run_info(cls, config: RelationConfig) -> AdapterTrackingRelationInfo:
        """Return the adapter's name and version for dbt's events.

        Why: dbt derives the name of the adapter's module from its class, and `UpsertKafkaAdapter` would be `upsertkafka`.
        Missing: an adapter cannot declare the name of its module.
        """
        return AdapterTrackingRelationInfo(  # type: ignore[abstract]
            adapter_name="upsert_kafka", base_adapter_version=base_version, adapter_version=version, model_adapter_details={}
        )


class ConnectionManagerHooks(SparkConnectionManager):
    """Private methods of dbt's connection managers that are called."""

    def with_query_comment(self, sql: str) -> str:
        """Return the statement with the project's `query-comment`.

        Why: an override of `execute` must add the comment itself.
        Missing: there is no public method for it. dbt's own managers call the private one.
        """
        return self._add_query_comment(sql)


def is_partial_run(config: Any) -> bool:
    """Whether --empty or --sample limits the rows of ref(), so that a SELECT is not the whole table.

    Args:
        config: dbt's RuntimeConfig, which an adapter gets as its `config`.

    Why: such a run must neither publish nor delete.
    Missing: an adapter sees these flags only as attributes of `config.args`. `dbt debug` has a config without `args`.
    """
    arguments = getattr(config, "args", None)
    return bool(getattr(arguments, "empty", False)) or getattr(arguments, "sample", None) is not None


def is_deferred_run(config: Any) -> bool:
    """Whether --defer lets ref() return relations of another environment.

    Args:
        config: as for `is_partial_run`.

    Why: a model then may not have read the source of this environment, whose group must stay as it is.
    Missing: an adapter sees this flag only as an attribute of `config.args`.
    """
    return bool(getattr(getattr(config, "args", None), "defer", False))


def command_of(config: Any) -> str:
    """The dbt command, such as `run` or `test`; empty if it is not known.

    Args:
        config: as for `is_partial_run`.

    Why: Spark starts while dbt parses the project, if the command needs it.
    Missing: an adapter sees the command only as an attribute of `config.args`.
    """
    return str(getattr(getattr(config, "args", None), "which", ""))


def compile_schemas() -> None:
    """Compute the JSON schemas with which every dbt command validates the project's files.

    Why: they are a third of the CPU time of a small command; the resident dbt computes them once, before it forks.
    Missing: dbt computes a schema when a class is first used, and keeps it for the process.
    """
    from dbt.contracts import project, selection

    classes = (project.ProjectFlags, project.ProfileConfig, project.Project, project.PackageConfig, project.Configuration)
    for cls in (*classes, selection.SelectorFile):
        cls.json_schema()


def compile_serializers(*classes: type) -> Iterator[None]:
    """Compile the methods with which every dbt command reads and writes its manifest, and those of `classes`; yields after each.

    Why: they are two thirds of the CPU time of a small `dbt parse`; the resident dbt compiles them once, before it forks.
    Missing: mashumaro compiles a method when it is first called, and has no way to compile it without a call.
    """
    from dbt.adapters.contracts import relation
    from dbt.artifacts import resources
    from dbt.artifacts.schemas import manifest as artifact
    from dbt.artifacts.schemas import run
    from dbt.contracts import files, project, selection
    from dbt.contracts.graph import manifest, nodes, unparsed
    from dbt.parser import manifest as parsing

    modules = (manifest, nodes, unparsed, artifact, run, files, project, selection, parsing, resources, relation)
    found = {each for module in modules for each in vars(module).values() if isinstance(each, type)}
    # A base class has methods of its own, which those of its subclasses call.
    found = {base for each in (*found, *classes) for base in each.__mro__ if base.__module__.startswith("dbt.")}
    # Those of the manifest add the methods of its parts.
    for cls in (manifest.Manifest, *sorted(found, key=lambda each: (each.__module__, each.__qualname__))):
        for name, method in list(vars(cls).items()):
            # The method is compiled, and then fails, because there is nothing to read or write.
            with suppress(Exception):
                if name.startswith("__mashumaro_from_"):
                    method.__get__(None, cls)({})
                elif name.startswith("__mashumaro_to_"):
                    method(object.__new__(cls))
        yield


def without_ref_filter(relation: BaseRelation) -> BaseRelation:
    """Return the relation itself, for a ref() that --empty or --sample made a subquery.

    Why: a subquery cannot be described.
    Missing: dbt has no method that removes the limit and the filter.
    """
    return relation.replace(limit=None, event_time_filter=None)


def manifest_nodes(adapter: SparkAdapter) -> Iterable[Any]:
    """The nodes of the project, as dbt parsed them; none before that.

    Why: whether a relation is restored from the state topic depends on its model, and a message names the model.
    Missing: `get_macro_resolver` is documented to return macros only. It returns the manifest.
    """
    nodes: Mapping[str, Any] = getattr(adapter.get_macro_resolver(), "nodes", None) or {}
    return nodes.values()


def node_of(hook_config: Any) -> Any:
    """Return the node that dbt passes to `pre_model_hook` inside its `config` object.

    Why: defaults of the profile (`file_format`) must be in the node's config before the materialization reads it.
    Missing: dbt has no hook for defaults, and documents the argument as a read-only dictionary. It is an object with the node as
    `model`, whose `config` the materialization reads later.
    """
    return hook_config.model


def view_text(relation: Any) -> str:
    """Return the text of SHOW TABLE EXTENDED for a relation from dbt's cache, which contains the SQL of a view.

    Why: it distinguishes the view of a topic from other views without a query for each model.
    Missing: dbt-spark stores the text in `information`, which is not documented.
    """
    return getattr(relation, "information", None) or ""


def call_python_model(scope: MutableMapping[str, Any], load_table: Callable[[str], Any], session: Any) -> Any:
    """Call `model(dbt, session)` of a Python model whose compiled code was executed in `scope`.

    Why: the model runs in this process.
    Missing: dbt has no function that runs a compiled model. Its adapters append a line to the code that uses `dbtObj`, a class in
    the compiled code.
    """
    names: Mapping[str, Any] = scope
    return names["model"](names["dbtObj"](load_table), session)


def invocation_id() -> str:
    """The id of this dbt command, which its logs and artifacts have too.

    Why: a state record names the run that wrote it.
    Missing: adapters get the id only inside of macros.
    """
    return get_invocation_id()


def declare_enforced_constraints(materializations: Sequence[str]) -> None:
    """Declare to dbt's parser that these materializations enforce constraints, as tables do.

    Why: the parser warns that constraints "will be ignored", which is wrong here, and an error with --warn-error.
    Missing: the list of materializations is a constant of dbt-core. Without dbt-core, there is no parser.
    """
    nodes = sys.modules.get("dbt.contracts.graph.nodes")
    if nodes is None or hasattr(nodes.ModelNode, "_upsert_kafka_enforces"):
        return
    enforces = nodes.ModelNode.materialization_enforces_constraints.fget
    nodes.ModelNode._upsert_kafka_enforces = tuple(materializations)
    nodes.ModelNode.materialization_enforces_constraints = property(
        lambda node: node.config.materialized in materializations or enforces(node)
    )


def variables(config: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The dbt variables as they are written: those of dbt_project.yml, where packages have dictionaries, and of `--vars`.

    Why: a misspelt variable of this adapter is an error.
    Missing: macros can ask for a variable by its name only, and adapters have no method for variables.
    """
    return dict(config.vars.to_dict()), dict(config.cli_vars)


def multi_option() -> Any:
    """The class of click options such as --select, which take several values after one flag.

    Why: the selection of `upsert-kafka stream` is written as that of dbt's commands.
    Missing: click has options with a fixed number of values only, and dbt does not document its class.
    """
    from dbt.cli.options import MultiOption

    return MultiOption


def target_name(config: Any) -> str:
    """The name of the profile's target.

    Why: it is the default of the profile's `environment`.
    Missing: the profile that an adapter gets is not documented, and credentials don't know their own name.
    """
    return str(config.target_name)


def after_profile_of_init(adapter_type: str, call: Callable[[], None]) -> None:
    """Call a function in `dbt init` after the questions for a profile of this adapter, in the folder of the project.

    Why: some answers belong to dbt_project.yml.
    Missing: an adapter's profile_template.yml writes to profiles.yml only. Without dbt-core, there is no `dbt init`.
    """
    init = sys.modules.get("dbt.task.init")
    if init is None or hasattr(init.InitTask, "_upsert_kafka_asks"):
        return
    create_profile = init.InitTask.create_profile_from_profile_template

    def create_profile_and_call(task: Any, profile_template: dict[str, Any], profile_name: str) -> None:
        create_profile(task, profile_template, profile_name)
        if profile_template.get("fixed", {}).get("type") == adapter_type:
            call()

    init.InitTask._upsert_kafka_asks = True
    init.InitTask.create_profile_from_profile_template = create_profile_and_call


def hide_stack_trace() -> None:
    """Leave the stack trace of the exception that ends this command to dbt's log file.

    Why: dbt prints one for each exception that is not its own, also for KeyboardInterrupt.
    Missing: commands have no other way to end early, and dbt has no flag for it.
    """
    for event_logger in get_event_manager().loggers:
        if event_logger.name == STDOUT_LOG:
            event_logger.filter = _without_stack_trace(event_logger.filter)


def _without_stack_trace(shown: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda message: message.info.name != "MainStackTrace" and shown(message)


def stdout_handlers() -> list[logging.StreamHandler[Any]]:
    """The handlers that write dbt's log lines to the terminal.

    Why: lines that show progress on the same terminal must be erased before, and drawn again after, a log line.
    Missing: dbt has no hook before a line is written, and does not document the name of the logger.
    """
    return [handler for handler in logging.getLogger(STDOUT_LOG).handlers if isinstance(handler, logging.StreamHandler)]


def wants_progress(config: Any) -> bool:
    """Whether the user reads the output of this command: no --quiet, and text as log format.

    Args:
        config: as for `is_partial_run`.

    Why: scripts must not get lines that are for people.
    Missing: an adapter sees these flags only as attributes of `config.args`.
    """
    arguments = getattr(config, "args", None)
    return not getattr(arguments, "quiet", False) and str(getattr(arguments, "log_format", None) or "default").lower() != "json"


def uses_colors(config: Any) -> bool:
    """Whether --use-colors is set, which is the default.

    Args:
        config: as for `is_partial_run`.

    Why: progress has the colours of dbt's own lines.
    Missing: as for `wants_progress`.
    """
    return bool(getattr(getattr(config, "args", None), "use_colors", True))
