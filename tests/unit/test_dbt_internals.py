"""The private parts of dbt that dbt_internals.py uses are where the installed releases are expected to have them."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from importlib.metadata import version
from importlib.resources import files
from types import SimpleNamespace
from typing import Any

import pytest
from dbt.adapters.base.connections import BaseConnectionManager
from dbt.adapters.base.impl import AdapterTrackingRelationInfo, BaseAdapter
from dbt.adapters.base.relation import BaseRelation
from dbt.adapters.spark.impl import SparkAdapter
from dbt.adapters.spark.relation import SparkRelation
from dbt.cli import requires
from dbt.config.project import VarProvider
from dbt.config.runtime import RuntimeConfig
from dbt.context import providers
from dbt.contracts.graph.manifest import Manifest
from dbt.contracts.graph.nodes import Macro, ModelNode
from dbt.contracts.project import Project
from dbt.parser.schemas import ModelPatchParser
from dbt.task import init, run
from dbt_common.events.functions import get_stdout_config

from dbt.adapters.upsert_kafka import dbt_internals
from dbt.adapters.upsert_kafka.impl import UpsertKafkaAdapter

RELEASES = ", ".join(f"{name} {version(name)}" for name in ("dbt-core", "dbt-adapters", "dbt-spark"))
MOVED = f"A release moved it ({RELEASES}): adapt dbt/adapters/upsert_kafka/dbt_internals.py"


def test_catalog_of_dbt_spark_asks_for_the_columns_of_each_relation() -> None:
    source = inspect.getsource(SparkAdapter._get_one_catalog)
    assert "self._get_columns_for_catalog(relation)" in source, f"dbt-spark does not call _get_columns_for_catalog. {MOVED}"


def test_run_info_has_the_fields_that_are_given() -> None:
    known = {field.name for field in fields(AdapterTrackingRelationInfo)}
    given = {"adapter_name", "base_adapter_version", "adapter_version", "model_adapter_details"}
    assert known == given, f"AdapterTrackingRelationInfo has the fields {sorted(known)}. {MOVED}"
    assert "__name__" in inspect.getsource(BaseAdapter.get_adapter_run_info), (
        f"dbt no longer derives the adapter's module from its class: the override may be removed. {MOVED}"
    )
    assert UpsertKafkaAdapter.get_adapter_run_info(None).adapter_name == "upsert_kafka"  # type: ignore[arg-type]


def test_query_comment_is_added_by_the_private_method() -> None:
    add = getattr(BaseConnectionManager, "_add_query_comment", None)
    assert add is not None, f"BaseConnectionManager has no _add_query_comment. {MOVED}"
    assert list(inspect.signature(add).parameters) == ["self", "sql"], f"_add_query_comment has other parameters. {MOVED}"


def test_submitted_python_code_is_logged_by_the_decorator() -> None:
    source = inspect.getsource(dbt_internals.log_code_execution)
    assert '"submit_python_job"' in source, f"log_code_execution is not for submit_python_job. {MOVED}"


@pytest.mark.parametrize(
    ("arguments", "partial"),
    [({}, False), ({"empty": False, "sample": None}, False), ({"empty": True}, True), ({"sample": "1 day"}, True)],
)
def test_partial_run_follows_the_flags(arguments: dict[str, Any], partial: bool) -> None:
    assert dbt_internals.is_partial_run(SimpleNamespace(args=SimpleNamespace(**arguments))) is partial


def test_config_without_arguments_is_not_a_partial_run() -> None:
    assert not dbt_internals.is_partial_run(SimpleNamespace())


def test_flags_of_a_partial_run_are_arguments_of_the_config() -> None:
    assert "args" in {field.name for field in fields(RuntimeConfig)}, f"RuntimeConfig has no args. {MOVED}"
    source = inspect.getsource(providers)
    assert 'getattr(self.config.args, "sample", None)' in source, f"dbt-core reads --sample elsewhere. {MOVED}"
    assert 'getattr(self.config.args, "EMPTY", False)' in source, f"dbt-core reads --empty elsewhere. {MOVED}"


def test_deferred_run_follows_the_flag() -> None:
    assert "self.config.args.defer" in inspect.getsource(providers), f"dbt-core reads --defer elsewhere. {MOVED}"
    assert dbt_internals.is_deferred_run(SimpleNamespace(args=SimpleNamespace(defer=True)))
    assert not dbt_internals.is_deferred_run(SimpleNamespace(args=SimpleNamespace(defer=False)))
    assert not dbt_internals.is_deferred_run(SimpleNamespace())


def test_ref_filter_is_a_field_of_the_relation() -> None:
    known = {field.name for field in fields(BaseRelation)}
    assert {"limit", "event_time_filter"} <= known, f"BaseRelation has no limit or no event_time_filter. {MOVED}"
    relation = SparkRelation.create(schema="a", identifier="b", limit=0)
    assert "limit" in str(relation)
    assert str(dbt_internals.without_ref_filter(relation)) == "a.b"


def test_pre_model_hook_gets_an_object_with_the_node() -> None:
    # dbt-core until 1.11, and from 1.12 on
    calls = ("self.adapter.pre_model_hook(context_config)", 'self.adapter.pre_model_hook(context["config"])')
    assert any(call in inspect.getsource(run) for call in calls), f"dbt-core calls the hook elsewhere. {MOVED}"
    source = inspect.getsource(providers.RuntimeConfigObject.__init__)
    assert "self.model = model" in source, f"the config of a materialization has no model. {MOVED}"


def test_view_text_is_stored_by_dbt_spark() -> None:
    source = inspect.getsource(SparkAdapter._build_spark_relation_list)
    assert "information=information" in source, f"dbt-spark does not store the text of SHOW TABLE EXTENDED. {MOVED}"
    assert dbt_internals.view_text(SparkRelation.create(schema="a", identifier="b", information="View Text: x")) == "View Text: x"
    assert dbt_internals.view_text(SparkRelation.create(schema="a", identifier="b")) == ""


def test_compiled_python_model_has_the_class_that_is_called() -> None:
    macro = files("dbt.include.global_project").joinpath("macros", "python_model", "python.sql").read_text()
    assert "class dbtObj:\n    def __init__(self, load_df_function)" in macro, f"compiled Python models have no dbtObj. {MOVED}"
    scope: dict[str, Any] = {"dbtObj": lambda load: load, "model": lambda dbt, session: (dbt("orders"), session)}
    assert dbt_internals.call_python_model(scope, str.upper, "session") == ("ORDERS", "session")


def test_variables_of_all_places_are_found() -> None:
    assert "cli_vars" in {field.name for field in fields(RuntimeConfig)}, f"RuntimeConfig has no cli_vars. {MOVED}"
    written: dict[str, Any] = {"a": 1, "shop": {"b": 2}}
    assert dbt_internals.variables(SimpleNamespace(vars=VarProvider(written), cli_vars={"c": 3})) == (written, {"c": 3})


def test_parser_knows_that_topics_enforce_constraints() -> None:
    dbt_internals.declare_enforced_constraints(("upsert_kafka", "kafka"))
    enforces = ModelNode.materialization_enforces_constraints.fget  # type: ignore[attr-defined]
    found = {kind: enforces(SimpleNamespace(config=SimpleNamespace(materialized=kind))) for kind in ("kafka", "table", "view")}
    assert found == {"kafka": True, "table": True, "view": False}, MOVED
    source = inspect.getsource(ModelPatchParser._validate_constraint_prerequisites)
    assert "not model_node.materialization_enforces_constraints" in source, f"dbt-core warns elsewhere. {MOVED}"


def test_macro_resolver_is_the_manifest() -> None:
    source = inspect.getsource(requires)
    # dbt-core before 1.12 has it in ctx.obj, 1.12 in a variable.
    is_manifest = re.search(r'adapter\.set_macro_resolver\((ctx\.obj\["manifest"\]|manifest)\)', source)
    assert is_manifest, f"the macro resolver is not the manifest. {MOVED}"
    adapter: Any = SimpleNamespace(get_macro_resolver=lambda: SimpleNamespace(nodes={"a": 1}))
    assert list(dbt_internals.manifest_nodes(adapter)) == [1]
    adapter.get_macro_resolver = lambda: None
    assert list(dbt_internals.manifest_nodes(adapter)) == []


def test_init_asks_after_the_profile_of_this_adapter_only(monkeypatch: pytest.MonkeyPatch) -> None:
    source = inspect.getsource(init.InitTask.create_profile_from_target)
    called = "load_plugin(adapter)" in source and "self.create_profile_from_profile_template(profile_template, " in source
    assert called, f"dbt init calls create_profile_from_profile_template elsewhere. {MOVED}"
    monkeypatch.setattr(init.InitTask, "create_profile_from_profile_template", lambda *_: None)
    monkeypatch.delattr(init.InitTask, "_upsert_kafka_asks", raising=False)
    calls: list[str] = []
    dbt_internals.after_profile_of_init("upsert_kafka", lambda: calls.append("asked"))
    create: Any = init.InitTask.create_profile_from_profile_template
    create(None, {"fixed": {"type": "spark"}}, "shop")
    create(None, {"fixed": {"type": "upsert_kafka"}}, "shop")
    assert calls == ["asked"]


def test_stack_trace_is_left_to_the_log_file(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "fire_event(MainStackTrace(" in inspect.getsource(requires.postflight), f"dbt prints it elsewhere. {MOVED}"
    stdout, file = (SimpleNamespace(name=name, filter=lambda _: True) for name in (dbt_internals.STDOUT_LOG, "file_log"))
    assert f'name="{stdout.name}"' in inspect.getsource(get_stdout_config), f"the logger has another name. {MOVED}"
    monkeypatch.setattr(dbt_internals, "get_event_manager", lambda: SimpleNamespace(loggers=[stdout, file]))
    dbt_internals.hide_stack_trace()
    trace, error = (SimpleNamespace(info=SimpleNamespace(name=name)) for name in ("MainStackTrace", "MainEncounteredError"))
    assert (stdout.filter(trace), stdout.filter(error), file.filter(trace)) == (False, True, True)


def test_compile_schemas_computes_what_every_command_needs() -> None:
    dbt_internals.compile_schemas()
    before = Project.json_schema.cache_info().misses
    Project.validate({"name": "shop", "config-version": 2, "profile": "shop"})
    assert Project.json_schema.cache_info().misses == before, f"dbt does not keep the schemas of its classes. {MOVED}"


def test_serializers_of_the_manifest_are_compiled() -> None:
    for _ in dbt_internals.compile_serializers():
        pass
    for cls, name in ((Manifest, "from_msgpack"), (Macro, "from_msgpack"), (ModelNode, "from_dict"), (ModelNode, "to_dict")):
        method = getattr(cls, f"__mashumaro_{name}__", None)
        assert method is not None, f"mashumaro has no __mashumaro_{name}__ in {cls.__name__}. {MOVED}"
        assert "CodeBuilder" not in method.__code__.co_names, f"{cls.__name__}.{name} will be compiled when it is called. {MOVED}"
