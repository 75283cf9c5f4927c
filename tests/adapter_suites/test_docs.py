"""dbt's suites of documentation: the catalog, comments in the database, and a topic's statistics."""

from __future__ import annotations

from typing import Any

import pytest
from dbt.artifacts.schemas.catalog import CatalogArtifact
from dbt.tests.adapter.basic import expected_catalog
from dbt.tests.adapter.basic.test_docs_generate import BaseDocsGenerate, BaseDocsGenReferences
from dbt.tests.adapter.catalog import files as catalog_files
from dbt.tests.adapter.catalog.relation_types import CatalogRelationTypes
from dbt.tests.adapter.persist_docs.test_persist_docs import (
    BasePersistDocs,
    BasePersistDocsAllColumnsMissing,
    BasePersistDocsColumnMissing,
    BasePersistDocsCommentOnQuotedColumn,
    BasePersistDocsQuotedColumnCaseSensitive,
    BasePersistDocsQuotedDescriptionNotAppliedOnMismatch,
)
from dbt.tests.fixtures.project import TestProjInfo

TYPES = {"id_type": "bigint", "text_type": "string", "time_type": "timestamp", "view_type": "view", "table_type": "table"}


class TestDocsGenerate(BaseDocsGenerate):
    @pytest.fixture(scope="class")
    def expected_catalog(self, project: TestProjInfo) -> dict[str, Any]:
        return expected_catalog.base_expected_catalog(
            project, role=None, model_stats=expected_catalog.no_stats(), seed_stats=expected_catalog.no_stats(), **TYPES
        )


class TestDocsGenReferences(BaseDocsGenReferences):
    @pytest.fixture(scope="class")
    def expected_catalog(self, project: TestProjInfo) -> dict[str, Any]:
        return expected_catalog.expected_references_catalog(
            project,
            role=None,
            model_stats=expected_catalog.no_stats(),
            seed_stats=expected_catalog.no_stats(),
            bigint_type="bigint",
            **TYPES,
        )


class TestCatalogRelationTypes(CatalogRelationTypes):
    @pytest.fixture(scope="class", autouse=True)
    def models(self) -> dict[str, str]:
        """A topic instead of Postgres' materialized view."""
        topic = "{{ config(materialized='upsert_kafka', unique_key='id') }} select 1 as id"
        return {"my_table.sql": catalog_files.MY_TABLE, "my_view.sql": catalog_files.MY_VIEW, "my_topic.sql": topic}

    @pytest.mark.parametrize(
        ("node_name", "relation_type"),
        [
            ("seed.test.my_seed", "table"),
            ("model.test.my_table", "table"),
            ("model.test.my_view", "view"),
            ("model.test.my_topic", "view"),
        ],
    )
    def test_relation_types_populate_correctly(self, docs: CatalogArtifact, node_name: str, relation_type: str) -> None:
        super().test_relation_types_populate_correctly(docs, node_name, relation_type)

    def test_a_topic_has_its_statistics_in_the_catalog(self, docs: CatalogArtifact, project: TestProjInfo) -> None:
        stats = {name: stat.value for name, stat in docs.nodes["model.test.my_topic"].stats.items()}
        assert stats["topic"] == f"{project.test_schema}.my_topic"
        assert (stats["partitions"], stats["records"], stats["cleanup_policy"]) == (1, 1, "compact")
        assert int(stats["bytes"] or 0) > 0
        assert stats["retention"] == "last record per key"
        assert str(stats["last_record"]).startswith("20")


class TestPersistDocs(BasePersistDocs):
    pass


class TestPersistDocsOnUpsertKafka(BasePersistDocs):
    """The suite's table and view, both published."""

    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        models = {"no_docs_model": (1, "Alice"), "table_model": (1, "Joe"), "view_model": (2, "Bob")}
        config = "{{ config(materialized='upsert_kafka', unique_key='id') }}"
        return {f"{name}.sql": f"{config} select {i} as id, '{who}' as name" for name, (i, who) in models.items()}


class TestPersistDocsColumnMissing(BasePersistDocsColumnMissing):
    pass


class TestPersistDocsAllColumnsMissing(BasePersistDocsAllColumnsMissing):
    pass


class TestPersistDocsQuotedColumnCaseSensitive(BasePersistDocsQuotedColumnCaseSensitive):
    pass


class TestPersistDocsQuotedDescriptionNotAppliedOnMismatch(BasePersistDocsQuotedDescriptionNotAppliedOnMismatch):
    pass


class TestPersistDocsCommentOnQuotedColumn(BasePersistDocsCommentOnQuotedColumn):
    pass
