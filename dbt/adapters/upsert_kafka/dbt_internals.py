"""The only module that uses private or undocumented parts of dbt-core, dbt-adapters and dbt-spark.

Each entry says why it exists and which public way is missing. tests/unit/test_dbt_internals.py fails with a sentence if a
release of dbt moved one of these parts.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import Any

from dbt.adapters.__about__ import version as base_version
from dbt.adapters.base.impl import AdapterTrackingRelationInfo, log_code_execution
from dbt.adapters.base.relation import BaseRelation
from dbt.adapters.contracts.relation import RelationConfig
from dbt.adapters.spark.connections import SparkConnectionManager
from dbt.adapters.spark.impl import SparkAdapter
from dbt_common.invocation import get_invocation_id

from dbt.adapters.upsert_kafka.__version__ import version

__all__ = [
    "ConnectionManagerHooks",
    "SparkAdapterHooks",
    "call_python_model",
    "declare_enforced_constraints",
    "invocation_id",
    "is_deferred_run",
    "is_partial_run",
    "log_code_execution",
    "manifest_nodes",
    "node_of",
    "target_name",
    "variables",
    "view_text",
    "without_ref_filter",
]

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


def variables(config: Any) -> dict[str, Any]:
    """All dbt variables by name: those of `--vars`, of dbt_project.yml, and those below the name of a package.

    Why: a misspelt variable of this adapter is an error.
    Missing: macros can ask for a variable by its name only, and adapters have no method for variables.
    """
    found: dict[str, Any] = {}
    for name, value in config.vars.to_dict().items():
        found |= value if isinstance(value, dict) else {name: value}
    return found | dict(config.cli_vars)


def target_name(config: Any) -> str:
    """The name of the profile's target.

    Why: it is the default of the profile's `environment`.
    Missing: the profile that an adapter gets is not documented, and credentials don't know their own name.
    """
    return str(config.target_name)
