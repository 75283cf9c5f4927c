"""Which partition each record goes to. A key that is in the topic stays where it is; a partitioner decides for the others.

Promises that a record's place is known, and allowed, before anything is written. Leaves it to Spark's sink to do Kafka's default
itself, in the JVM.
"""

from __future__ import annotations

import importlib
import operator
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dbt.adapters.events.logging import AdapterLogger
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from dbt.adapters.upsert_kafka.errors import DeliveryError, OptionsError
from dbt.adapters.upsert_kafka.held import hold

# Imported where records are placed: dbt commands that write nothing would wait a second for it.
if TYPE_CHECKING:
    import pandas as pd

logger = AdapterLogger("upsert_kafka")

DEFAULT, FIXED, ROUND_ROBIN, CUSTOM = "default", "fixed", "round-robin", "custom"
Function = Callable[[bytes | None, bytes | None, int], int]
TASK_BITS = 33
"""Spark's monotonically increasing ids have the task above these bits, and the row below."""

# A cluster's workers need not have this package.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@dataclass(frozen=True)
class Partitioner:
    """A model's choice, checked: a custom function is imported."""

    kind: str = DEFAULT
    name: str | None = None
    function: Function | None = None


class PartitionerError(Exception):
    """A custom function did not name a partition."""


def load(kind: str | None, name: str | None, folder: Path | None = None) -> Partitioner:
    """Check a model's `sink_partitioner` and import its function.

    Args:
        name: `package.module.function`, for a custom one.
        folder: where modules are looked for before Python's own path: the project's.
    """
    if kind != CUSTOM:
        return Partitioner(kind or DEFAULT)
    module_name, _, function_name = (name or "").rpartition(".")
    path = [str(folder)] if folder else []
    sys.path[:0] = path
    try:
        module = importlib.import_module(module_name)
        function = getattr(module, function_name)
    except Exception as error:
        # Whatever the user's module raises when it is imported.
        logger.debug(f"importing '{name}' failed: {error!r}")
        raise OptionsError(
            f"sink_partitioner_class '{name}' can't be imported ({type(error).__name__}: {error}); it names a Python function as "
            "'package.module.function' that takes key, value and the number of partitions"
        ) from None
    finally:
        for entry in path:
            sys.path.remove(entry)
    if not callable(function):
        raise OptionsError(
            f"sink_partitioner_class '{name}' is a {type(function).__name__}, not a function(key, value, partitions)"
        )
    cloudpickle.register_pickle_by_value(module)
    return Partitioner(CUSTOM, name, function)


def place(records: DataFrame, partitioner: Partitioner, partitions: int) -> DataFrame:
    """Fill the column `partition` where it is null; Kafka's default partitioner leaves that to the sink.

    Args:
        partitions: of the topic.

    Raises:
        DeliveryError: a custom function failed or named a partition that there isn't. Nothing was written.
    """
    if partitioner.kind == CUSTOM:
        return _place_by_function(records, partitioner, partitions)
    if partitioner.kind == DEFAULT:
        # Every sink knows it.
        return records
    return records.withColumn("partition", F.coalesce("partition", _new(partitioner.kind, partitions)))


def _new(kind: str, partitions: int) -> Column:
    task = F.spark_partition_id()
    row = F.monotonically_increasing_id().bitwiseAND(F.lit((1 << TASK_BITS) - 1))
    in_turn = ((task + row) % partitions).cast("int")
    return in_turn if kind == ROUND_ROBIN else task % partitions


def _vectorized(function: Any, *columns: str) -> Column:
    import pandas as pd

    # Spark asks the annotations what the function is, and can't read those of this module, which are text.
    names = [*function.__code__.co_varnames[: function.__code__.co_argcount], "return"]
    function.__annotations__ = dict.fromkeys(names, pd.Series)
    return F.pandas_udf(function, "int")(*columns)  # type: ignore[call-overload]


def _place_by_function(records: DataFrame, partitioner: Partitioner, partitions: int) -> DataFrame:
    chosen = _vectorized(_by_function(partitioner.name, partitioner.function, partitions), "key", "value", "partition")
    try:
        # Once and now: a refused answer must come before the first record is written.
        return hold(records.withColumn("partition", chosen))
    except PySparkException as error:
        text = str(error)
        logger.debug(f"placing failed: {text}")
        found = re.findall(r"PartitionerError: (.*)", text)
        raise DeliveryError(f"{found[-1] if found else text.splitlines()[0]}. Nothing was written.") from None


def _by_function(name: str | None, function: Any, partitions: int) -> Callable[..., pd.Series]:
    import pandas as pd

    def ask(key: bytes | None, value: bytes | None) -> int:
        try:
            answer = operator.index(function(key, value, partitions))
        except Exception as error:
            raise PartitionerError(
                f"sink_partitioner_class '{name}' failed for key {key!r:.80}: {type(error).__name__}: {error}"
            ) from None
        if not 0 <= answer < partitions:
            raise PartitionerError(
                f"sink_partitioner_class '{name}' answered {answer} for key {key!r:.80}: "
                f"the topic has partitions 0 to {partitions - 1}"
            )
        return answer

    def by_function(keys: pd.Series, values: pd.Series, places: pd.Series) -> pd.Series:
        rows = zip(keys, values, places.isna(), places, strict=True)
        return pd.Series([ask(key, value) if is_new else int(place) for key, value, is_new, place in rows], dtype="int32")

    return by_function
