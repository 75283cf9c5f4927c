"""dbt's suites of contracts and constraints."""

from __future__ import annotations

from typing import ClassVar

import pytest
from dbt.tests.adapter.constraints import fixtures
from dbt.tests.adapter.constraints.test_constraints import (
    BaseConstraintQuotedColumn,
    BaseConstraintsColumnsEqual,
    BaseConstraintsRollback,
    BaseConstraintsRuntimeDdlEnforcement,
    BaseIncrementalConstraintsColumnsEqual,
    BaseIncrementalConstraintsRollback,
    BaseIncrementalConstraintsRuntimeDdlEnforcement,
    BaseIncrementalContractSqlHeader,
    BaseIncrementalForeignKeyConstraint,
    BaseModelConstraintsRuntimeEnforcement,
    BaseTableConstraintsColumnsEqual,
    BaseTableContractSqlHeader,
    BaseViewConstraintsColumnsEqual,
)


def spark_types(text: str) -> str:
    return text.replace("data_type: text", "data_type: string")


def published(sql: str) -> str:
    return sql.replace('"table"', '"upsert_kafka"')


TABLE = """
create or replace table <model_identifier> using delta as
select id, color, date_day from (
    -- depends_on: <foreign_key_model_identifier>
    select 'blue' as color, 1 as id, '2019-01-01' as date_day ) as model_subq
"""


class Files:
    """A suite's project with Spark's names of types."""

    files: ClassVar[dict[str, str]]

    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        return {name: spark_types(text) for name, text in self.files.items()}


class Ddl(Files):
    """Delta tables, which can be replaced, and the SQL that dbt should run for them."""

    file_format = "delta"
    sql = TABLE

    @pytest.fixture(scope="class")
    def expected_sql(self) -> str:
        return self.sql


class SparkTypes(Files):
    """A value, its type in YAML, and the type as dbt prints it in its table of differences."""

    @pytest.fixture
    def string_type(self) -> str:
        return "string"

    @pytest.fixture
    def int_type(self) -> str:
        return "int"

    @pytest.fixture
    def data_types(self) -> list[list[str]]:
        return [
            ["1", "int", "int"],
            ["'1'", "string", "string"],
            ["true", "boolean", "boolean"],
            ["array('a', 'b')", "array<string>", "array<string>"],
            ["6.45", "decimal(3,2)", "decimal"],
            ["timestamp_ntz '2019-01-01 00:00:00'", "timestamp_ntz", "timestamp_ntz"],
        ]


class TestTableConstraintsColumnsEqual(SparkTypes, BaseTableConstraintsColumnsEqual):
    files: ClassVar = {
        "my_model_wrong_order.sql": fixtures.my_model_wrong_order_sql,
        "my_model_wrong_name.sql": fixtures.my_model_wrong_name_sql,
        "constraints_schema.yml": fixtures.model_schema_yml,
    }


class TestViewConstraintsColumnsEqual(SparkTypes, BaseViewConstraintsColumnsEqual):
    files: ClassVar = {
        "my_model_wrong_order.sql": fixtures.my_model_view_wrong_order_sql,
        "my_model_wrong_name.sql": fixtures.my_model_view_wrong_name_sql,
        "constraints_schema.yml": fixtures.model_schema_yml,
    }


class TestIncrementalConstraintsColumnsEqual(SparkTypes, BaseIncrementalConstraintsColumnsEqual):
    files: ClassVar = {
        "my_model_wrong_order.sql": fixtures.my_model_incremental_wrong_order_sql,
        "my_model_wrong_name.sql": fixtures.my_model_incremental_wrong_name_sql,
        "constraints_schema.yml": fixtures.model_schema_yml,
    }


class TestUpsertKafkaConstraintsColumnsEqual(SparkTypes, BaseConstraintsColumnsEqual):
    """The contract is checked before anything is published."""

    files: ClassVar = {
        "my_model_wrong_order.sql": published(fixtures.my_model_wrong_order_sql),
        "my_model_wrong_name.sql": published(fixtures.my_model_wrong_name_sql),
        "constraints_schema.yml": fixtures.model_schema_yml,
    }

    @pytest.fixture(autouse=True)
    def published_types(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The suite writes this model for each type. Its only column is the key."""
        key = "unique_key='wrong_data_type_column_name', full_refresh=true, materialized"
        sql = fixtures.my_model_data_type_sql.replace("materialized", key)
        monkeypatch.setattr(fixtures, "my_model_data_type_sql", published(sql))


class TestConstraintsRuntimeDdlEnforcement(Ddl, BaseConstraintsRuntimeDdlEnforcement):
    files: ClassVar = {
        "my_model.sql": fixtures.my_model_wrong_order_depends_on_fk_sql,
        "foreign_key_model.sql": fixtures.foreign_key_model_sql,
        "constraints_schema.yml": fixtures.model_fk_constraint_schema_yml,
    }


class TestIncrementalConstraintsRuntimeDdlEnforcement(Ddl, BaseIncrementalConstraintsRuntimeDdlEnforcement):
    files: ClassVar = {
        "my_model.sql": fixtures.my_model_incremental_wrong_order_depends_on_fk_sql,
        "foreign_key_model.sql": fixtures.foreign_key_model_sql,
        "constraints_schema.yml": fixtures.model_fk_constraint_schema_yml,
    }


class TestModelConstraintsRuntimeEnforcement(Ddl, BaseModelConstraintsRuntimeEnforcement):
    files: ClassVar = {
        "my_model.sql": fixtures.my_model_wrong_order_depends_on_fk_sql,
        "foreign_key_model.sql": fixtures.foreign_key_model_sql,
        "constraints_schema.yml": fixtures.constrained_model_schema_yml,
    }


class TestConstraintQuotedColumn(Ddl, BaseConstraintQuotedColumn):
    sql = """
create or replace table <model_identifier> using delta as
select id, `from`, date_day from (
    select 'blue' as `from`, 1 as id, '2019-01-01' as date_day ) as model_subq
"""
    files: ClassVar = {
        "my_model.sql": fixtures.my_model_with_quoted_column_name_sql,
        "constraints_schema.yml": fixtures.model_quoted_column_schema_yml.replace('"from"', "`from`"),
    }


class Violations(Files):
    """Messages of Delta. A table is replaced before its constraints are added."""

    file_format = "delta"

    @pytest.fixture(scope="class")
    def expected_error_messages(self) -> list[str]:
        return ["DELTA_NEW_CHECK_CONSTRAINT_VIOLATION", "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"]

    def assert_expected_error_messages(self, error_message: str, expected_error_messages: list[str]) -> None:
        assert any(message in error_message for message in expected_error_messages), error_message


class TestConstraintsRollback(Violations, BaseConstraintsRollback):
    files: ClassVar = {"my_model.sql": fixtures.my_model_sql, "constraints_schema.yml": fixtures.model_schema_yml}

    @pytest.fixture(scope="class")
    def expected_color(self) -> str:
        return "red"


class TestIncrementalConstraintsRollback(Violations, BaseIncrementalConstraintsRollback):
    files: ClassVar = {"my_model.sql": fixtures.my_incremental_model_sql, "constraints_schema.yml": fixtures.model_schema_yml}


class TestUpsertKafkaConstraintsRollback(Files, BaseConstraintsRollback):
    """A row that violates a constraint leaves the topic unchanged."""

    files: ClassVar = {"my_model.sql": published(fixtures.my_model_sql), "constraints_schema.yml": fixtures.model_schema_yml}

    @pytest.fixture(scope="class")
    def null_model_sql(self) -> str:
        return published(fixtures.my_model_with_nulls_sql)

    @pytest.fixture(scope="class")
    def expected_error_messages(self) -> list[str]:
        return ["1 row has NULL in 'id', which has a not_null constraint", "the topic is untouched"]


def sql_header(sql: str) -> dict[str, str]:
    """The suite's header sets a session variable of Postgres, this one a setting of Spark."""
    sql = sql.replace("set session time zone", "set time zone").replace("current_setting('timezone')", "current_timezone()")
    return {"my_model_contract_sql_header.sql": sql, "constraints_schema.yml": fixtures.model_contract_header_schema_yml}


class TestTableContractSqlHeader(Files, BaseTableContractSqlHeader):
    files: ClassVar = sql_header(fixtures.my_model_contract_sql_header_sql)


class TestIncrementalContractSqlHeader(Files, BaseIncrementalContractSqlHeader):
    files: ClassVar = sql_header(fixtures.my_model_incremental_contract_sql_header_sql)


class TestIncrementalForeignKeyConstraint(BaseIncrementalForeignKeyConstraint):
    """Without Delta Lake a unique_key needs the strategy, see `table_formats`."""

    @pytest.fixture(scope="class")
    def project_config_update(self) -> dict[str, object]:
        return {"models": {"+incremental_strategy": "append"}}
