"""dbt's suites of incremental models."""

from __future__ import annotations

import pytest
from dbt.tests.adapter.incremental.test_incremental_merge_exclude_columns import BaseMergeExcludeColumns
from dbt.tests.adapter.incremental.test_incremental_microbatch import BaseMicrobatch
from dbt.tests.adapter.incremental.test_incremental_on_schema_change import BaseIncrementalOnSchemaChange
from dbt.tests.adapter.incremental.test_incremental_predicates import BaseIncrementalPredicates
from dbt.tests.adapter.incremental.test_incremental_unique_id import BaseIncrementalUniqueKey


class TestIncrementalUniqueKey(BaseIncrementalUniqueKey):
    file_format = "delta"


class TestMergeExcludeColumns(BaseMergeExcludeColumns):
    file_format = "delta"


class TestIncrementalPredicates(BaseIncrementalPredicates):
    file_format = "delta"

    @pytest.fixture(scope="class")
    def project_config_update(self) -> dict[str, object]:
        predicate = "dbt_internal_dest.id != 2"
        return {"models": {"+incremental_predicates": [predicate], "+incremental_strategy": "merge"}}


class TestIncrementalOnSchemaChange(BaseIncrementalOnSchemaChange):
    file_format = "delta"


class TestMicrobatch(BaseMicrobatch):
    @pytest.fixture(scope="class")
    def microbatch_model_sql(self) -> str:
        return """
            {{ config(materialized='incremental', incremental_strategy='microbatch', partition_by='date_day',
                      event_time='event_time', batch_size='day', begin=modules.datetime.datetime(2020, 1, 1, 0, 0, 0)) }}
            select *, cast(event_time as date) as date_day from {{ ref('input_model') }}
            """
