"""dbt's suites of relations: aliases, ephemeral models, concurrency, and models whose materialization changes."""

from __future__ import annotations

import os
import re

import pytest
from dbt.tests.adapter.aliases import fixtures
from dbt.tests.adapter.aliases.test_aliases import BaseAliasErrors, BaseAliases, BaseSameAliasDifferentSchemas
from dbt.tests.adapter.column_types import fixtures as column_types
from dbt.tests.adapter.column_types.test_column_types import BasePostgresColumnTypes
from dbt.tests.adapter.concurrency.test_concurrency import BaseConcurrency
from dbt.tests.adapter.ephemeral.test_ephemeral import BaseEphemeralErrorHandling, BaseEphemeralMulti, BaseEphemeralNested
from dbt.tests.adapter.relations.test_changing_relation_type import BaseChangeRelationTypeValidator
from dbt.tests.adapter.relations.test_dropping_schema_named import BaseDropSchemaNamed
from dbt.tests.adapter.simple_copy.test_copy_uppercase import BaseSimpleCopyUppercase
from dbt.tests.adapter.simple_copy.test_simple_copy import EmptyModelsArentRunBase, SimpleCopyBase
from dbt.tests.fixtures.project import TestProjInfo
from dbt.tests.util import check_relations_equal, run_dbt

from tests.adapter_suites.spark_sql import in_spark_sql

MACROS = {"cast.sql": in_spark_sql(fixtures.MACROS__CAST_SQL), "expect_value.sql": fixtures.MACROS__EXPECT_VALUE_SQL}


class SparkMacros:
    @pytest.fixture(scope="class")
    def macros(self) -> dict[str, str]:
        return MACROS


class TestAliases(SparkMacros, BaseAliases):
    pass


class TestAliasErrors(SparkMacros, BaseAliasErrors):
    pass


class TestSameAliasDifferentSchemas(SparkMacros, BaseSameAliasDifferentSchemas):
    pass


class TestColumnTypes(BasePostgresColumnTypes):
    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        sql = column_types.model_sql.replace("double precision", "double").replace("::numeric", "::decimal(3,1)")
        return {"model.sql": in_spark_sql(sql).replace("::text", "::string"), "schema.yml": column_types.schema_yml}


class TestConcurrency(BaseConcurrency):
    pass


def compiled(name: str) -> str:
    """The SQL that ran for a model, without white space and numbers."""
    with open(os.path.join("target", "run", "test", "models", f"{name}.sql")) as file:
        return "".join(re.sub(r"\d+", "", file.read()).split())


class TestEphemeralMulti(BaseEphemeralMulti):
    def test_ephemeral_multi(self, project: TestProjInfo) -> None:
        run_dbt(["seed"])
        assert len(run_dbt(["run"])) == 3
        for name in ("dependent", "double_dependent", "super_dependent"):
            check_relations_equal(project.adapter, ["seed", name])
        schema = re.sub(r"\d+", "", project.test_schema)
        assert (
            f"with__dbt__cte__baseas(select*from{schema}.seed),__dbt__cte__base_copyas(select*from__dbt__cte__base)"
            in compiled("double_dependent")
        )


class TestEphemeralNested(BaseEphemeralNested):
    def test_ephemeral_nested(self, project: TestProjInfo) -> None:
        assert len(run_dbt(["run"])) == 2
        schema = re.sub(r"\d+", "", project.test_schema)
        assert (
            f"createorreplaceview{schema}.root_viewaswith__dbt__cte__ephemeral_level_twoas(select*from{schema}.source_table),"
            "__dbt__cte__ephemeralas(select*from__dbt__cte__ephemeral_level_two)select*from__dbt__cte__ephemeral"
        ) in compiled("root_view")


class TestEphemeralErrorHandling(BaseEphemeralErrorHandling):
    pass


class TestChangeRelationType(BaseChangeRelationTypeValidator):
    pass


class TestChangeRelationTypeWithUpsertKafka(BaseChangeRelationTypeValidator):
    """A model becomes a topic, and a topic becomes another relation."""

    @pytest.fixture(scope="class")
    def project_config_update(self) -> dict[str, object]:
        return {"models": {"+unique_key": "materialization", "+incremental_strategy": "append"}}

    def test_changing_materialization_changes_relation_type(self, project: TestProjInfo) -> None:
        for materialization in ("view", "upsert_kafka", "table", "upsert_kafka", "incremental", "upsert_kafka", "view"):
            self._run_and_check_materialization(materialization)
            sql = "select materialization from {schema}.model_mc_modelface"
            assert project.run_sql(sql, fetch="all") == [(materialization,)]


class TestDropSchemaNamed(BaseDropSchemaNamed):
    pass


class TestSimpleCopy(SimpleCopyBase):
    def test_simple_copy_with_materialized_views(self, project: TestProjInfo) -> None:
        """Spark has no materialized views. An unrelated table and a view of it are used instead."""
        project.run_sql("create table {schema}.unrelated_table (id int)")
        project.run_sql("create view {schema}.unrelated_view as select * from {schema}.unrelated_table")
        assert len(run_dbt(["seed"])) == 1
        assert len(run_dbt()) == 7


class TestEmptyModelsArentRun(EmptyModelsArentRunBase):
    pass


class TestSimpleCopyUppercase(BaseSimpleCopyUppercase):
    @pytest.fixture(scope="class")
    def dbt_profile_target(self, profile: dict[str, object]) -> dict[str, object]:
        return {**profile, "file_format": "parquet"}
