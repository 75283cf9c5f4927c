"""dbt's suites of snapshots. All use MERGE and therefore Delta."""

from __future__ import annotations

from typing import Any

import pytest
from dbt.tests.adapter.simple_snapshot import test_various_configs
from dbt.tests.adapter.simple_snapshot.new_record_check_mode import BaseSnapshotNewRecordCheckMode
from dbt.tests.adapter.simple_snapshot.new_record_dbt_valid_to_current import BaseSnapshotNewRecordDbtValidToCurrent
from dbt.tests.adapter.simple_snapshot.new_record_timestamp_mode import BaseSnapshotNewRecordTimestampMode
from dbt.tests.adapter.simple_snapshot.test_ephemeral_snapshot_hard_deletes import (
    BaseSnapshotEphemeralHardDeletes,
    BaseSnapshotNewColumnSpecificCheckCols,
    BaseSnapshotNewColumnTimestampStrategy,
    BaseSnapshotNewColumnWithDeletes,
)
from dbt.tests.adapter.simple_snapshot.test_snapshot import BaseSimpleSnapshot, BaseSnapshotCheck
from dbt.tests.adapter.simple_snapshot.test_various_configs import (
    BaseSnapshotColumnNames,
    BaseSnapshotColumnNamesFromDbtProject,
    BaseSnapshotDbtValidToCurrent,
    BaseSnapshotInvalidColumnNames,
    BaseSnapshotMultiUniqueKey,
)
from dbt.tests.util import run_sql_with_adapter


class Delta:
    file_format = "delta"


class NewColumn(Delta):
    @pytest.fixture(scope="class")
    def source_alter_sql(self) -> str:
        """Add a column and set its values. Delta has no defaults for added columns."""
        table = "{database}.{schema}.src_customers"
        return f"alter table {table} add column dummy_column string; update {table} set dummy_column = 'dummy_value'"


class TestSimpleSnapshot(Delta, BaseSimpleSnapshot):
    def add_fact_column(self, column: str = "", definition: str = "") -> None:
        super().add_fact_column(column, definition.removesuffix(" default null"))


class TestSnapshotCheck(Delta, BaseSnapshotCheck):
    pass


class TestSnapshotColumnNames(Delta, BaseSnapshotColumnNames):
    pass


class TestSnapshotColumnNamesFromDbtProject(Delta, BaseSnapshotColumnNamesFromDbtProject):
    pass


class TestSnapshotInvalidColumnNames(Delta, BaseSnapshotInvalidColumnNames):
    pass


class TestSnapshotDbtValidToCurrent(Delta, BaseSnapshotDbtValidToCurrent):
    @pytest.fixture(autouse=True)
    def in_order(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The suite expects the rows in Postgres' order: the first versions by id, then the second ones."""
        version = "row_number() over (partition by id order by test_valid_from) as version"
        ordered = f"from (select *, {version} from {{schema}}.snapshot_actual) order by version, id"

        def run(adapter: Any, sql: str, fetch: str) -> Any:
            return run_sql_with_adapter(adapter, sql.replace("from {schema}.snapshot_actual", ordered), fetch)

        monkeypatch.setattr(test_various_configs, "run_sql_with_adapter", run)


class TestSnapshotMultiUniqueKey(Delta, BaseSnapshotMultiUniqueKey):
    pass


class TestSnapshotNewRecordTimestampMode(Delta, BaseSnapshotNewRecordTimestampMode):
    pass


class TestSnapshotNewRecordCheckMode(Delta, BaseSnapshotNewRecordCheckMode):
    pass


class TestSnapshotNewRecordDbtValidToCurrent(Delta, BaseSnapshotNewRecordDbtValidToCurrent):
    pass


class TestSnapshotEphemeralHardDeletes(NewColumn, BaseSnapshotEphemeralHardDeletes):
    pass


class TestSnapshotNewColumnTimestampStrategy(NewColumn, BaseSnapshotNewColumnTimestampStrategy):
    pass


class TestSnapshotNewColumnSpecificCheckCols(NewColumn, BaseSnapshotNewColumnSpecificCheckCols):
    pass


class TestSnapshotNewColumnWithDeletes(NewColumn, BaseSnapshotNewColumnWithDeletes):
    pass
