"""dbt's suites of commands and flags: show, debug, clone, --empty, --sample, query comments, the cache."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from dbt.tests.adapter.caching.test_caching import (
    BaseCachingLowercaseModel,
    BaseCachingSelectedSchemaOnly,
    BaseCachingUppercaseModel,
    BaseNoPopulateCache,
)
from dbt.tests.adapter.dbt_clone.test_dbt_clone import BaseCloneNotPossible, BaseClonePossible, BaseCloneSameTargetAndState
from dbt.tests.adapter.dbt_debug.test_dbt_debug import BaseDebugInvalidProjectPostgres, BaseDebugPostgres
from dbt.tests.adapter.dbt_show.test_dbt_show import BaseShowDoesNotHandleDoubleLimit, BaseShowLimit, BaseShowSqlHeader
from dbt.tests.adapter.empty import _models
from dbt.tests.adapter.empty.test_empty import (
    BaseTestEmpty,
    BaseTestEmptyInlineSourceRef,
    MetadataWithEmptyFlag,
)
from dbt.tests.adapter.query_comment.test_query_comment import (
    BaseEmptyQueryComments,
    BaseMacroArgsQueryComments,
    BaseMacroInvalidQueryComments,
    BaseMacroQueryComments,
    BaseNullQueryComments,
    BaseQueryComments,
)
from dbt.tests.adapter.sample_mode.test_sample_mode import BaseSampleModeTest
from dbt.tests.fixtures.project import TestProjInfo
from dbt.tests.util import run_dbt


class DropSchemas:
    """Drop the schemas that the suite's project creates."""

    @pytest.fixture(autouse=True)
    def clean_up(self, project: TestProjInfo) -> Iterator[None]:
        yield
        for suffix in ("_seeds", "_other", ""):
            project.run_sql(f"drop schema if exists {project.test_schema}{suffix} cascade")


class TestShowLimit(BaseShowLimit):
    pass


class TestShowSqlHeader(BaseShowSqlHeader):
    pass


class TestShowDoesNotHandleDoubleLimit(BaseShowDoesNotHandleDoubleLimit):
    DATABASE_ERROR_MESSAGE = "PARSE_SYNTAX_ERROR"


class TestDebug(BaseDebugPostgres):
    pass


class TestDebugInvalidProject(BaseDebugInvalidProjectPostgres):
    pass


class TestClonePossible(DropSchemas, BaseClonePossible):
    file_format = "delta"


class TestCloneNotPossible(DropSchemas, BaseCloneNotPossible):
    file_format = "delta"


class TestCloneSameTargetAndState(DropSchemas, BaseCloneSameTargetAndState):
    pass


class TestEmpty(BaseTestEmpty):
    pass


class TestEmptyInlineSourceRef(BaseTestEmptyInlineSourceRef):
    pass


class TestMetadataWithEmptyFlag(MetadataWithEmptyFlag):
    file_format = "delta"

    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        given = {
            name.lower(): getattr(_models, name) for name in vars(_models) if name.isupper() and name not in ("SEED", "SCHEMA")
        }
        spark = {name: sql.replace('"varchar"', '"string"') for name, sql in given.items()}
        return {"schema.yml": _models.SCHEMA, **{f"{name}.sql": sql for name, sql in spark.items()}}


class TestSampleMode(BaseSampleModeTest):
    pass


class TestQueryComments(BaseQueryComments):
    pass


class TestMacroQueryComments(BaseMacroQueryComments):
    pass


class TestMacroArgsQueryComments(BaseMacroArgsQueryComments):
    pass


class TestMacroInvalidQueryComments(BaseMacroInvalidQueryComments):
    pass


class TestNullQueryComments(BaseNullQueryComments):
    pass


class TestEmptyQueryComments(BaseEmptyQueryComments):
    pass


class NoDatabase:
    """The suite's check without the database, which relations of Spark do not have."""

    def run_and_inspect_cache(self, project: TestProjInfo, run_args: list[str] | None = None) -> None:
        for _ in range(2):
            run_dbt(run_args)
            [relation] = project.adapter.cache.relations
            assert relation.schema == project.test_schema == project.test_schema.lower()
            assert (relation.database, relation.identifier.lower()) == (None, "model")


class TestCachingLowercaseModel(NoDatabase, BaseCachingLowercaseModel):
    pass


class TestCachingUppercaseModel(NoDatabase, BaseCachingUppercaseModel):
    pass


class TestCachingSelectedSchemaOnly(NoDatabase, BaseCachingSelectedSchemaOnly):
    pass


class TestNoPopulateCache(NoDatabase, BaseNoPopulateCache):
    pass
