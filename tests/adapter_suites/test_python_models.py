"""dbt's suites of Python models."""

from __future__ import annotations

import pytest
from dbt.tests.adapter.python_model.test_python_model import (
    BasePythonEmptyTests,
    BasePythonIncrementalTests,
    BasePythonMetaGetTests,
    BasePythonModelTests,
    BasePythonSampleTests,
)
from dbt.tests.adapter.python_model.test_spark import PANDAS_MODEL, PYSPARK_MODEL, BasePySparkTests
from dbt.tests.fixtures.project import TestProjInfo
from dbt.tests.util import run_dbt

from tests.counts import counts


class TestPythonModel(BasePythonModelTests):
    pass


class TestPythonIncremental(BasePythonIncrementalTests):
    file_format = "delta"


class TestPythonMetaGet(BasePythonMetaGetTests):
    pass


class TestPythonEmpty(BasePythonEmptyTests):
    pass


class TestPythonSample(BasePythonSampleTests):
    pass


# Without pandas on Spark (also called Koalas), which can't be imported with pandas 3.
MODELS = {"pandas_df.py": PANDAS_MODEL, "pyspark_df.py": PYSPARK_MODEL}


class TestPySpark(BasePySparkTests):
    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        return MODELS

    def test_different_dataframes(self, project: TestProjInfo) -> None:
        assert len(run_dbt(["run"])) == len(MODELS)


class TestPySparkOnUpsertKafka(BasePySparkTests):
    """A Python model whose result is published."""

    @pytest.fixture(scope="class")
    def project_config_update(self) -> dict[str, object]:
        return {"models": {"+unique_key": "City"}}

    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        return {name: code.replace('materialized="table"', 'materialized="upsert_kafka"') for name, code in MODELS.items()}

    def test_different_dataframes(self, project: TestProjInfo) -> None:
        results = run_dbt(["run"])
        assert [counts(result.message) for result in results] == [(5, 0, 0, 0)] * len(MODELS)
        for file in MODELS:
            sql = f"select Country from {{schema}}.{file.removesuffix('.py')} where City = 'Bogota'"
            assert project.run_sql(sql, fetch="one")[0] == "Colombia"
