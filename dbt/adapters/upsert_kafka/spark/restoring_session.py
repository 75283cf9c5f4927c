"""A Spark session whose catalog is up to date: it has what another process has changed, and relations that can be restored.

If a statement needs a relation that the catalog does not have, it is repeated after the relation was created. So a relation is
created when it is first needed, by whatever runs the statement: dbt, a Python model or this package. Leaves to `catalog.restore`
how a relation is created and to `project_catalog` how other processes' changes are read.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from dbt.adapters.upsert_kafka.spark.project_catalog import ProjectCatalog

NOT_FOUND = "TABLE_OR_VIEW_NOT_FOUND"
_NAME_PART = re.compile(r"`((?:[^`]|``)*)`")

Result = TypeVar("Result")
Restore = Callable[[SparkSession, str, str], bool]
"""Creates the relation of a schema and a name; False if it can't."""


class RestoringSession(SparkSession):
    """An ordinary session apart from `sql` and `table`. Not for Spark Connect, which analyses statements on the server."""

    restore: Restore | None = None
    """None while a relation is being created."""
    definitions: ProjectCatalog | None = None
    """None if the profile names another catalog."""

    def sql(self, sqlQuery: str, args: Any = None, **kwargs: Any) -> DataFrame:
        return self.repeat(lambda: super(RestoringSession, self).sql(sqlQuery, args, **kwargs))

    def table(self, tableName: str) -> DataFrame:
        return self.repeat(lambda: super(RestoringSession, self).table(tableName))

    def repeat(self, run: Callable[[], Result]) -> Result:
        """Run, and run again after each relation that was missing and could be created."""
        created: set[tuple[str, str]] = set()
        definitions = self.definitions
        if definitions is not None:
            definitions.refresh()
        while True:
            try:
                result = run()
            except AnalysisException as error:
                if definitions is not None and definitions.delete_orphan(error):
                    continue
                missing = missing_relation(error)
                if missing is None or missing in created or not self._create(*missing):
                    raise
                created.add(missing)
                continue
            if definitions is not None:
                definitions.raise_errors()
            return result

    def _create(self, schema: str, identifier: str) -> bool:
        restore = self.restore
        if restore is None:
            return False
        self.restore = None
        try:
            return restore(self, schema, identifier)
        finally:
            self.restore = restore


def missing_relation(error: BaseException) -> tuple[str, str] | None:
    """Schema and name of the relation that a statement did not find; None for other errors and names without a schema."""
    if not isinstance(error, AnalysisException) or error.getCondition() != NOT_FOUND:
        return None
    parts = _NAME_PART.findall((error.getMessageParameters() or {}).get("relationName", ""))
    if len(parts) < 2:
        return None
    schema, identifier = (part.replace("``", "`") for part in parts[-2:])
    return schema, identifier
