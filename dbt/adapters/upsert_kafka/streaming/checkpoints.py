"""Spark's checkpoint of a stream: where it is, and which batch and source offsets it has.

Every stream that starts over gets a folder of its own, whose name is in the state record. A checkpoint of another topic, another
SELECT or another start can't be used by mistake. Leaves to `start` what follows from its content.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from pyspark.sql import SparkSession

from dbt.adapters.upsert_kafka.spark.internals import HadoopFiles
from dbt.adapters.upsert_kafka.state.record import DELTA, SourceOffsets

MANAGER_SETTING = "spark.sql.streaming.checkpointFileManagerClass"
DELTA_ID = "reservoirId"


@dataclass(frozen=True)
class Checkpoint:
    """The checkpoint of one query."""

    path: str
    files: HadoopFiles

    @classmethod
    def of(cls, spark: SparkSession, location: str, topic: str, query: str) -> Checkpoint:
        path = f"{location.rstrip('/')}/{topic}/{query}"
        return cls(path, HadoopFiles(spark, path))

    @property
    def exists(self) -> bool:
        return self.files.has("metadata")

    def last_batch(self) -> int:
        """The last batch that Spark has begun; -1 if there is none. Spark writes its offsets before it computes the batch."""
        return max((int(name) for name in self.files.names("offsets") if name.isdecimal()), default=-1)

    def offsets(self, batch: int) -> SourceOffsets:
        """Where the sources end in a batch: where the next one begins."""
        return parse_offsets(self.files.read(f"offsets/{batch}"))


def parse_offsets(text: str) -> dict[str, dict[int, int]]:
    """The offsets in a file of Spark's offset log: a version, the settings of the query, and a line per source.

    >>> parse_offsets('v1\\n{"batchWatermarkMs":0}\\n{"views":{"0":12,"1":7}}')
    {'views': {0: 12, 1: 7}}

    The next commit of a Delta table and the next file in it are like a partition and its offset:

    >>> parse_offsets('v1\\n{}\\n{"sourceVersion":1,"reservoirId":"5f0c","reservoirVersion":4,"index":-1}')
    {'delta:5f0c': {4: -1}}
    """
    merged: dict[str, dict[int, int]] = {}
    for line in text.splitlines()[2:]:
        source = json.loads(line) if line.startswith("{") else {}
        if DELTA_ID in source:
            merged[f"{DELTA}{source[DELTA_ID]}"] = {int(source["reservoirVersion"]): int(source["index"])}
            continue
        for topic, partitions in source.items():
            found = merged.setdefault(topic, {})
            for partition, offset in partitions.items():
                # A topic may be read by two sources: what both have read is the smaller offset.
                found[int(partition)] = min(int(offset), found.get(int(partition), int(offset)))
    return merged
