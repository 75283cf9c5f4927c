"""dbt's suites of hooks."""

from __future__ import annotations

import os
from typing import Any, ClassVar

import pytest
from dbt.tests.adapter.hooks import fixtures
from dbt.tests.adapter.hooks.test_model_hooks import (
    MODEL_POST_HOOK,
    MODEL_PRE_HOOK,
    BaseDuplicateHooksInConfigs,
    BaseHookRefs,
    BaseHooksRefsOnSeeds,
    BasePrePostModelHooks,
    BasePrePostModelHooksInConfig,
    BasePrePostModelHooksInConfigKwargs,
    BasePrePostModelHooksInConfigWithCount,
    BasePrePostModelHooksOnSeeds,
    BasePrePostModelHooksOnSeedsPlusPrefixed,
    BasePrePostModelHooksOnSeedsPlusPrefixedWhitespace,
    BasePrePostModelHooksOnSnapshots,
    BasePrePostSnapshotHooksInConfigKwargs,
)
from dbt.tests.adapter.hooks.test_run_hooks import BaseAfterRunHooks, BasePrePostRunHooks
from dbt.tests.fixtures.project import TestProjInfo

FIELDS = (
    "test_state",
    "target_dbname",
    "target_host",
    "target_name",
    "target_schema",
    "target_type",
    "target_user",
    "target_pass",
    "target_threads",
    "run_started_at",
    "invocation_id",
    "thread_id",
)
# As in the suites. Postgres' "vacuum" is an example of a statement outside the transaction.
OUTSIDE = {"sql": "describe {{ this.schema }}.on_model_hook", "transaction": False}
HOOKS = {"pre-hook": [MODEL_PRE_HOOK, OUTSIDE], "post-hook": [OUTSIDE, MODEL_POST_HOOK]}


def create(project: TestProjInfo, table: str) -> None:
    columns = ", ".join(f"{name} {'int' if name == 'target_threads' else 'string'}" for name in FIELDS)
    project.run_sql(f"drop table if exists {project.test_schema}.{table}")
    project.run_sql(f"create table {project.test_schema}.{table} ({columns})")


def check(project: TestProjInfo, table: str, state: str, count: int) -> None:
    """Check the number of hooks that ran, and that each got the variables of this target."""
    rows = project.run_sql(f"select * from {project.test_schema}.{table} where test_state = '{state}'", fetch="all")
    assert len(rows) == count
    for row in rows:
        assert (row["target_name"], row["target_schema"], row["target_type"], row["target_threads"]) == (
            "default",
            project.test_schema,
            "upsert_kafka",
            2,
        )
        assert row["run_started_at"] and row["invocation_id"]
        assert row["thread_id"].startswith("Thread-") or row["thread_id"] == "MainThread"


class HookTable:
    """Create the table that the hooks write to."""

    @pytest.fixture(scope="class", autouse=True)
    def setUp(self, project: TestProjInfo) -> None:
        create(project, "on_model_hook")

    def check_hooks(self, state: str, project: TestProjInfo, host: None, count: int = 1) -> None:
        check(project, "on_model_hook", state, count)


class HooksOfModels(HookTable):
    """The hooks are in dbt_project.yml."""

    hooks: ClassVar[dict[str, Any]] = HOOKS

    @pytest.fixture(scope="class")
    def project_config_update(self) -> dict[str, Any]:
        return {"models": {"test": self.hooks}}


class TestPrePostModelHooks(HooksOfModels, BasePrePostModelHooks):
    pass


class TestPrePostModelHooksUnderscores(HooksOfModels, BasePrePostModelHooks):
    hooks: ClassVar = {name.replace("-", "_"): hooks for name, hooks in HOOKS.items()}


class TestHookRefs(HookTable, BaseHookRefs):
    pass


class TestPrePostModelHooksInConfig(HookTable, BasePrePostModelHooksInConfig):
    pass


class TestPrePostModelHooksInConfigKwargs(HookTable, BasePrePostModelHooksInConfigKwargs):
    pass


class TestPrePostModelHooksInConfigWithCount(HooksOfModels, BasePrePostModelHooksInConfigWithCount):
    pass


class TestPrePostModelHooksOnUpsertKafka(HooksOfModels, BasePrePostModelHooks):
    """The same hooks on a model that publishes."""

    hooks: ClassVar = {**HOOKS, "+materialized": "upsert_kafka", "+unique_key": "id"}

    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        return {"hooks.sql": "select 1 as id"}


class TestHookRefsOfUpsertKafka(HookTable, BaseHookRefs):
    """A hook reads a topic: the suite's models are published."""

    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        published = "{{ config(materialized='upsert_kafka', unique_key='test_state') }}\n"
        post = published + fixtures.models__post
        return {"hooked.sql": fixtures.models__hooked, "post.sql": post, "pre.sql": published + fixtures.models__pre}


class TestPrePostModelHooksOnSeeds(BasePrePostModelHooksOnSeeds):
    file_format = "delta"


class TestPrePostModelHooksOnSeedsPlusPrefixed(BasePrePostModelHooksOnSeedsPlusPrefixed):
    file_format = "delta"


class TestPrePostModelHooksOnSeedsPlusPrefixedWhitespace(BasePrePostModelHooksOnSeedsPlusPrefixedWhitespace):
    file_format = "delta"


class TestHooksRefsOnSeeds(BaseHooksRefsOnSeeds):
    pass


class TestPrePostModelHooksOnSnapshots(BasePrePostModelHooksOnSnapshots):
    file_format = "delta"


class TestPrePostSnapshotHooksInConfigKwargs(BasePrePostSnapshotHooksInConfigKwargs):
    file_format = "delta"


class TestDuplicateHooksInConfigs(BaseDuplicateHooksInConfigs):
    pass


class TestPrePostRunHooks(BasePrePostRunHooks):
    @pytest.fixture(scope="function")
    def setUp(self, project: TestProjInfo) -> None:
        create(project, "on_run_hook")
        for table in ("schemas", "db_schemas"):
            project.run_sql(f"drop table if exists {project.test_schema}.{table}")
        os.environ["TERM_TEST"] = "TESTING"

    @pytest.fixture(scope="class")
    def project_config_update(self) -> dict[str, Any]:
        hook = "{{{{ custom_run_hook('{}', target, run_started_at, invocation_id) }}}}"
        order = [
            "create table {{ target.schema }}.NAME_hook_order_test ( id int )",
            "drop table {{ target.schema }}.NAME_hook_order_test",
        ]
        used = [
            "create table {{ target.schema }}.schemas as select explode(array('{{ schemas | join(\"', '\") }}')) as schema",
            "create table {{ target.schema }}.db_schemas as select string(null) as db, '{{ database_schemas[0][1] }}' as schema",
        ]
        return {
            "on-run-start": [hook.format("start"), *(sql.replace("NAME", "start") for sql in order)],
            "on-run-end": [hook.format("end"), *(sql.replace("NAME", "end") for sql in order), *used],
            "seeds": {"quote_columns": False},
        }

    def check_hooks(self, state: str, project: TestProjInfo, host: None) -> None:
        check(project, "on_run_hook", state, 1)


class TestAfterRunHooks(BaseAfterRunHooks):
    pass
