"""The result of comparing rows with the topic: what the run would write, and how many keys there are of each kind.

Leaves to `difference` how it is computed, to `guards` whether it is allowed.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from dbt.adapters.upsert_kafka.formats.records import KEY, PARTITION, VALUE, extras
from dbt.adapters.upsert_kafka.publish.kinds import KIND, WRITTEN, Kind, Policy
from dbt.adapters.upsert_kafka.publish.scan import STALE


@dataclass(frozen=True)
class Changes:
    """The changes of one run.

    The frames are checkpointed: a SELECT that returns other rows each time it runs is written as it was compared.
    """

    frame: DataFrame
    """The keys whose kind `is_shown`: `kind, key, value, partition` (null for a key that is not in the topic), `hash_1`,
    `hash_2`, `row_hash_1` and `row_hash_2`, the hashes of the values in the topic and in the SELECT, `headers` and `timestamp` if
    the options ask for them, `stale` (see `scan`) if the topic has split keys and tombstones may be written."""
    counts: dict[Kind, int]
    rows: int
    """Rows of the SELECT."""
    live_keys: int
    """Live keys of the topic before the run."""
    split_keys: int
    """Keys of the topic that are in more than one partition, see `scan.latest`."""
    largest: int
    """Bytes of the largest key and value together, among the messages to write."""
    policy: Policy
    all_keys: DataFrame | None = None
    """`frame` plus the keys whose kind is not shown, with hashes but without values; None if the caller did not ask for it."""
    stale_values: int = 0
    """Old values, in other partitions, of the keys that are written. Each gets a tombstone."""

    def __getitem__(self, kind: Kind) -> int:
        return self.counts[kind]

    @property
    def keys_after(self) -> int:
        """Live keys of the topic after the run."""
        return self.live_keys + self[Kind.INSERT] - self[Kind.DELETE]

    @property
    def makes_equal(self) -> bool:
        """Whether the topic has exactly the rows after the run."""
        others = self[Kind.FOREIGN] or self[Kind.KEPT] or self[Kind.CONFLICT]
        return self.policy.is_complete and not others

    @property
    def to_write(self) -> int:
        """How many keys are written."""
        return sum(self.counts[kind] for kind in WRITTEN)

    @property
    def messages(self) -> int:
        """How many messages are written."""
        return self.to_write + self.stale_values + (self[Kind.UPDATE] if self.policy.retracts else 0)

    def written(self) -> DataFrame:
        """The part of `frame` that is written, and a DELETE for each old value of its keys in another partition."""
        written = self.frame.where(F.col(KIND).isin(*WRITTEN))
        if not self.stale_values:
            return written
        of_stale = written.where(F.size(STALE) > 0).withColumns({KIND: F.lit(Kind.DELETE), PARTITION: F.explode(STALE)})
        return written.unionByName(of_stale)

    def records(self) -> DataFrame:
        """The messages to write: `key, value, partition`, headers and timestamp, and `seq` if a key may have two messages."""
        written = self.written()
        is_delete = F.col(KIND) == Kind.DELETE
        value = F.when(~is_delete, F.col(VALUE)).alias(VALUE)
        # Tombstones of old values go first: a reader of all partitions gets the value last.
        seq = F.when(is_delete, 0).otherwise(1).alias("seq")
        if not self.policy.retracts:
            return written.select(KEY, value, PARTITION, *([seq] if self.stale_values else []), *extras(written))
        tombstone = F.struct(F.lit(0).alias("seq"), F.lit(None).cast("binary").alias(VALUE))
        new = F.struct(seq, value)
        messages = F.when(F.col(KIND) == Kind.UPDATE, F.array(tombstone, new)).otherwise(F.array(new))
        exploded = written.select(KEY, PARTITION, F.explode(messages).alias("message"), *extras(written))
        return exploded.select(KEY, f"message.{VALUE}", PARTITION, "message.seq", *extras(written))

    def examples(self, kind: Kind, text: Column, number: int) -> list[str]:
        """Some keys of one kind, each as the text that the column gives."""
        found = self.frame.where(F.col(KIND) == kind).select(text.alias("text")).limit(number).collect()
        return [row["text"] for row in found]
