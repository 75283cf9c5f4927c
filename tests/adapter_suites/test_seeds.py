"""dbt's suites of seeds."""

from __future__ import annotations

from pathlib import Path

import pytest
from dbt.tests.adapter.simple_seed import fixtures, test_seed
from dbt.tests.adapter.simple_seed.test_seed import (
    BaseBasicSeedTests,
    BaseSeedConfigFullRefreshOff,
    BaseSeedConfigFullRefreshOn,
    BaseSeedCustomSchema,
    BaseSeedParsing,
    BaseSeedSpecificFormats,
    BaseSeedWithEmptyDelimiter,
    BaseSeedWithUniqueDelimiter,
    BaseSeedWithWrongDelimiter,
    BaseSimpleSeedEnabledViaConfig,
    BaseSimpleSeedWithBOM,
    BaseTestEmptySeed,
)
from dbt.tests.adapter.simple_seed.test_seed_type_override import BaseSimpleSeedColumnOverride
from dbt.tests.fixtures.project import TestProjInfo
from dbt.tests.util import copy_file, run_dbt


class NoCascade:
    """If a table is dropped, its views stay in Spark's catalog and read the next table of the same name."""

    def _check_relation_end_state(self, run_result: list[object], project: TestProjInfo, exists: bool) -> None:
        super()._check_relation_end_state(run_result, project, exists=True)  # type: ignore[misc]


class TestBasicSeedTests(NoCascade, BaseBasicSeedTests):
    pass


class TestSeedConfigFullRefreshOn(NoCascade, BaseSeedConfigFullRefreshOn):
    pass


class TestSeedConfigFullRefreshOff(BaseSeedConfigFullRefreshOff):
    pass


class TestSeedCustomSchema(BaseSeedCustomSchema):
    pass


class TestSeedWithUniqueDelimiter(BaseSeedWithUniqueDelimiter):
    pass


class TestSeedWithWrongDelimiter(BaseSeedWithWrongDelimiter):
    def test_seed_with_wrong_delimiter(self, project: TestProjInfo) -> None:
        """The whole line is one column. Its name is valid in Spark only if it is quoted."""
        [seeded] = run_dbt(["seed"], expect_pass=False)
        assert "PARSE_SYNTAX_ERROR" in seeded.message


class TestSeedWithEmptyDelimiter(BaseSeedWithEmptyDelimiter):
    pass


class TestSimpleSeedEnabledViaConfig(BaseSimpleSeedEnabledViaConfig):
    pass


class TestSeedParsing(BaseSeedParsing):
    pass


class TestSimpleSeedWithBOM(BaseSimpleSeedWithBOM):
    @pytest.fixture(scope="class", autouse=True)
    def setUp(self, project: TestProjInfo) -> None:
        project.run_sql(test_seed.seeds.seeds__expected_sql)
        folder = str(Path(test_seed.__file__).parent)
        copy_file(folder, "seed_bom.csv", Path(project.project_root) / "seeds" / "seed_bom.csv", "")


class TestSeedSpecificFormats(BaseSeedSpecificFormats):
    """The file with dots in its name has an alias, because dots separate the parts of a name in Spark."""

    @pytest.fixture(scope="class")
    def project_config_update(self) -> dict[str, object]:
        return {"seeds": {"quote_columns": False, "test": {"seed.with.dots": {"+alias": "seed_with_dots"}}}}

    @pytest.fixture(scope="class")
    def test_data_dir(self, tmp_path_factory: pytest.TempPathFactory) -> Path:
        return tmp_path_factory.mktemp("seeds") / "data"


class TestEmptySeed(BaseTestEmptySeed):
    pass


class TestSimpleSeedColumnOverride(BaseSimpleSeedColumnOverride):
    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        types = {"text": "string", "integer": "bigint", "timestamp without time zone": "timestamp"}
        text = fixtures.properties__schema_yml
        for theirs, ours in types.items():
            text = text.replace(f"type: {theirs}\n", f"type: {ours}\n")
        return {"schema.yml": text}

    @staticmethod
    def seed_enabled_types() -> dict[str, str]:
        return {"seed_id": "string", "birthday": "date"}

    @staticmethod
    def seed_tricky_types() -> dict[str, str]:
        return dict.fromkeys(("seed_id_str", "looks_like_a_bool", "looks_like_a_date"), "string")


class TestExactValues:
    """Not a suite of dbt: the table has the values of the file."""

    @pytest.fixture(scope="class")
    def seeds(self) -> dict[str, str]:
        name, huge = '"it\'s \\ a ""quoted"" $name"', "12345678901234567890"
        first = f"1,{name},9223372036854775807,{huge},2024-02-29,2024-02-29 01:02:03,true,0.1"
        return {"exact.csv": f"id,name,big,huge,day,at,flag,ratio\n{first}\n2,,,,,,,\n"}

    def test_nulls_quotes_digits_and_dates_are_those_of_the_file(self, project: TestProjInfo) -> None:
        run_dbt(["seed"])
        rows = project.run_sql("select * from {schema}.exact order by id", fetch="all")
        assert [str(value) for value in rows[0]] == [
            "1",
            'it\'s \\ a "quoted" $name',
            "9223372036854775807",
            "12345678901234567890",
            "2024-02-29",
            "2024-02-29 01:02:03",
            "True",
            "0.1",
        ]
        assert list(rows[1])[1:] == [None] * 7
