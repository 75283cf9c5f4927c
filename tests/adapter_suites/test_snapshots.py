"""dbt's suites of snapshots. All of them merge, so all are Delta's."""

from __future__ import annotations

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


class Delta:
    file_format = "delta"


class TestSimpleSnapshot(Delta, BaseSimpleSnapshot):
    pass


class TestSnapshotCheck(Delta, BaseSnapshotCheck):
    pass


class TestSnapshotColumnNames(Delta, BaseSnapshotColumnNames):
    pass


class TestSnapshotColumnNamesFromDbtProject(Delta, BaseSnapshotColumnNamesFromDbtProject):
    pass


class TestSnapshotInvalidColumnNames(Delta, BaseSnapshotInvalidColumnNames):
    pass


class TestSnapshotDbtValidToCurrent(Delta, BaseSnapshotDbtValidToCurrent):
    pass


class TestSnapshotMultiUniqueKey(Delta, BaseSnapshotMultiUniqueKey):
    pass


class TestSnapshotNewRecordTimestampMode(Delta, BaseSnapshotNewRecordTimestampMode):
    pass


class TestSnapshotNewRecordCheckMode(Delta, BaseSnapshotNewRecordCheckMode):
    pass


class TestSnapshotNewRecordDbtValidToCurrent(Delta, BaseSnapshotNewRecordDbtValidToCurrent):
    pass


class TestSnapshotEphemeralHardDeletes(Delta, BaseSnapshotEphemeralHardDeletes):
    pass


class TestSnapshotNewColumnTimestampStrategy(Delta, BaseSnapshotNewColumnTimestampStrategy):
    pass


class TestSnapshotNewColumnSpecificCheckCols(Delta, BaseSnapshotNewColumnSpecificCheckCols):
    pass


class TestSnapshotNewColumnWithDeletes(Delta, BaseSnapshotNewColumnWithDeletes):
    pass
