"""Counts the rows that violate the constraints of a contract that a topic can keep. `contracts` reads them from the model."""

from __future__ import annotations

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType

from dbt.adapters.upsert_kafka.errors import OptionsError, count_of
from dbt.adapters.upsert_kafka.publish.contracts import Check
from dbt.adapters.upsert_kafka.spark.metrics import ObservedMetrics
from dbt.adapters.upsert_kafka.sql import quote_identifier


class ViolationCount:
    """Counts the rows that violate a not_null or check constraint, while the rows are computed for another reason."""

    def __init__(self, not_null: tuple[str, ...], checks: tuple[Check, ...]) -> None:
        self._not_null, self._checks = not_null, checks
        self._metrics = ObservedMetrics()

    def observe(self, rows: DataFrame) -> DataFrame:
        """The same rows; they are counted when they are computed.

        Raises:
            OptionsError: a check constraint is not a condition over the columns.
        """
        if not self._not_null and not self._checks:
            return rows
        violations = [F.col(quote_identifier(name)).isNull() for name in self._not_null]
        violations += [~_condition(rows, check) for check in self._checks]
        return self._metrics.observe(rows, *(F.count_if(violated).alias(f"c{i}") for i, violated in enumerate(violations)))

    def violations(self) -> list[str]:
        """One sentence per constraint that rows violate. Call it after the rows were computed."""
        if not self._not_null and not self._checks:
            return []
        found = self._metrics.values
        numbers = [found[f"c{i}"] for i in range(len(self._not_null) + len(self._checks))]
        nulls = zip(self._not_null, numbers, strict=False)
        checked = zip(self._checks, numbers[len(self._not_null) :], strict=True)
        return [
            f"{count_of(number, 'row', 'has', 'have')} NULL in '{name}', which has a not_null constraint. "
            "Filter such rows in the SELECT."
            for name, number in nulls
            if number
        ] + [
            f"{count_of(number, 'row', 'violates', 'violate')} the {check}. Filter such rows in the SELECT."
            for check, number in checked
            if number
        ]


def _condition(rows: DataFrame, check: Check) -> Column:
    condition = F.expr(check.expression)
    try:
        [field] = rows.select(condition).schema.fields
    except (AnalysisException, ParseException) as error:
        first = str(error).strip().splitlines()[0]
        raise OptionsError(f"{check} can't be evaluated: {first} Nothing was written.") from error
    if not isinstance(field.dataType, BooleanType):
        raise OptionsError(f"{check} is of type {field.dataType.simpleString()}, not boolean. Nothing was written.")
    return condition
