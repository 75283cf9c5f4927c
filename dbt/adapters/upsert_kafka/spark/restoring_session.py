"""A Spark session that asks for a relation that its catalog does not have, and repeats the statement if it was created.

So a relation is created when a statement first needs it, whoever runs the statement: dbt, a Python model or this package. Leaves
to `catalog.restore` how a relation is created.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

NOT_FOUND = "TABLE_OR_VIEW_NOT_FOUND"
_NAME_PART = re.compile(r"`((?:[^`]|``)*)`")

Restore = Callable[[SparkSession, str, str], bool]
"""Creates the relation of a schema and a name; False if it can't."""


class RestoringSession(SparkSession):
    """An ordinary session apart from `sql` and `table`. Not for Spark Connect, which analyses statements on the server."""

    restore: Restore | None = None
    """None while a relation is being created."""

    def sql(self, sqlQuery: str, args: Any = None, **kwargs: Any) -> DataFrame:
        return self._repeated(lambda: super(RestoringSession, self).sql(sqlQuery, args, **kwargs))

    def table(self, tableName: str) -> DataFrame:
        return self._repeated(lambda: super(RestoringSession, self).table(tableName))

    def _repeated(self, run: Callable[[], DataFrame]) -> DataFrame:
        """Run, and run again after each relation that was missing and could be created."""
        created: set[tuple[str, str]] = set()
        while True:
            try:
                return run()
            except AnalysisException as error:
                missing = missing_relation(error)
                if missing is None or missing in created or not self._create(*missing):
                    raise
                created.add(missing)

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
