"""The partition of each record. A key that is in the topic stays in its partition; a partitioner decides for new keys.

Partitions are known, and checked, before anything is written. Kafka's default partitioner is left to the sinks.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
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
from dbt.adapters.upsert_kafka.spark import shared_jvm
from dbt.adapters.upsert_kafka.spark.checkpoint import checkpoint

# Importing pandas takes a second, which dbt commands that write nothing should not wait for.
if TYPE_CHECKING:
    import pandas as pd

logger = AdapterLogger("upsert_kafka")

DEFAULT, FIXED, ROUND_ROBIN, CUSTOM = "default", "fixed", "round-robin", "custom"
Function = Callable[[bytes | None, bytes | None, int], int]
TASK_BITS = 33
"""Spark's monotonically increasing ids have the number of the row in these bits, and the number of the task above them."""

# This package may not be installed on a cluster's workers.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@dataclass(frozen=True)
class Partitioner:
    """A model's `sink_partitioner`; `name` and `function` are set for a custom one."""

    kind: str = DEFAULT
    name: str | None = None
    function: Function | None = None

    @property
    def is_default(self) -> bool:
        """Whether sinks choose the partitions, as Kafka's producers do."""
        return self.kind == DEFAULT


class PartitionerError(Exception):
    """A custom function failed, or returned no partition of the topic."""


def load(kind: str | None, name: str | None, folder: Path | None = None) -> Partitioner:
    """Check a model's `sink_partitioner` and import its function.

    Args:
        name: `package.module.function` of a custom partitioner.
        folder: the project's; modules are looked up here first.
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
        # The import runs the user's code, which may raise anything.
        logger.debug(f"importing '{name}' failed: {error!r}")
        raise OptionsError(
            f"sink_partitioner_class '{name}' can't be imported ({type(error).__name__}: {error}). Give it as "
            "'package.module.function', a Python function that takes key, value and the number of partitions."
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


def code_hash(partitioner: Partitioner) -> str | None:
    """A hash of the module with the custom function, whose helpers are usually there too; None without a function.

    Without source code only the name is known.
    """
    if partitioner.function is None:
        return None
    try:
        source = inspect.getsource(inspect.getmodule(partitioner.function) or partitioner.function)
    except (OSError, TypeError):  # a module in C, or an object without a module
        source = repr(partitioner.name)
    return hashlib.sha256(source.encode()).hexdigest()


def place(records: DataFrame, partitioner: Partitioner, partitions: int) -> DataFrame:
    """Fill the column `partition` where it is null, unless the partitioner is Kafka's default, which sinks apply themselves.

    Args:
        partitions: of the topic.

    Raises:
        DeliveryError: a custom function failed or returned a partition that does not exist. Nothing was written.
    """
    if partitioner.kind == CUSTOM:
        return _place_by_function(records, partitioner, partitions)
    if partitioner.kind == DEFAULT:
        return records
    return records.withColumn("partition", F.coalesce("partition", _partition_of_new_key(partitioner.kind, partitions)))


def _partition_of_new_key(kind: str, partitions: int) -> Column:
    task = F.spark_partition_id()
    row = F.monotonically_increasing_id().bitwiseAND(F.lit((1 << TASK_BITS) - 1))
    in_turn = ((task + row) % partitions).cast("int")
    return in_turn if kind == ROUND_ROBIN else task % partitions


def _vectorized(function: Any, *columns: str) -> Column:
    import pandas as pd

    # Spark reads the kind of UDF from the annotations. Those of this module are text, which it can't read.
    names = [*function.__code__.co_varnames[: function.__code__.co_argcount], "return"]
    function.__annotations__ = dict.fromkeys(names, pd.Series)
    return F.pandas_udf(function, "int")(*columns)  # type: ignore[call-overload]


def _place_by_function(records: DataFrame, partitioner: Partitioner, partitions: int) -> DataFrame:
    # Others may have imported an earlier state of the modules that the function uses.
    shared_jvm.use_new_workers(records.sparkSession)
    chosen = _vectorized(_by_function(partitioner.name, partitioner.function, partitions), "key", "value", "partition")
    try:
        # Evaluated once and now, so that an error comes before the first record is written.
        return checkpoint(records.withColumn("partition", chosen))
    except PySparkException as error:
        text = str(error)
        logger.debug(f"The partitioner failed: {text}")
        found = re.findall(r"PartitionerError: (.*)", text)
        raise DeliveryError(f"{found[-1] if found else text.splitlines()[0]}. Nothing was written.") from None


def _by_function(name: str | None, function: Any, partitions: int) -> Callable[..., pd.Series]:
    import pandas as pd

    def call(key: bytes | None, value: bytes | None) -> int:
        try:
            partition = operator.index(function(key, value, partitions))
        except Exception as error:
            raise PartitionerError(
                f"sink_partitioner_class '{name}' failed for key {key!r:.80}: {type(error).__name__}: {error}"
            ) from None
        if not 0 <= partition < partitions:
            raise PartitionerError(
                f"sink_partitioner_class '{name}' returned {partition} for key {key!r:.80}: "
                f"the topic has partitions 0 to {partitions - 1}"
            )
        return partition

    def by_function(keys: pd.Series, values: pd.Series, given: pd.Series) -> pd.Series:
        rows = zip(keys, values, given.isna(), given, strict=True)
        return pd.Series(
            [call(key, value) if is_new else int(partition) for key, value, is_new, partition in rows], dtype="int32"
        )

    return by_function
