"""Choose how a run compares its rows with the topic, and compare. There are five cases, from cheap to expensive:

1. `_with_empty_topic`: every row is new.
2. `_without_changes`: the digest of the rows is that of the last run.
3. `_with_snapshot`: the last run left a snapshot. A small one is compared in one task. Of a large one the buckets that differ are
   compared, or all keys if these are too many.
4. `_with_keys`: the same for a full refresh, which only has to find keys without a row.
5. `_with_topic`: the topic is read, a large one into a snapshot that is compared like that of case 3.

All find the same changes. After the delivery, `save_snapshot` prepares cases 2 to 4 for the next run. Leaves the comparison
of keys to `difference` and the storage of snapshots to `snapshots`.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession

from dbt.adapters.upsert_kafka import progress
from dbt.adapters.upsert_kafka.dbt_warnings import warn
from dbt.adapters.upsert_kafka.errors import count_of
from dbt.adapters.upsert_kafka.formats.changelog import ChangelogFormat
from dbt.adapters.upsert_kafka.formats.records import Records
from dbt.adapters.upsert_kafka.kafka_client.topics import Topic
from dbt.adapters.upsert_kafka.publish import change_events, difference, digest, scan, snapshot_log, snapshots
from dbt.adapters.upsert_kafka.publish.changes import Changes
from dbt.adapters.upsert_kafka.publish.digest import Digest
from dbt.adapters.upsert_kafka.publish.kinds import Kind, Policy
from dbt.adapters.upsert_kafka.publish.request import Request
from dbt.adapters.upsert_kafka.publish.snapshots import Snapshot
from dbt.adapters.upsert_kafka.spark.checkpoint import checkpoint, lazy_checkpoint
from dbt.adapters.upsert_kafka.state.record import Log


@dataclass(frozen=True)
class Inputs:
    """What is compared."""

    spark: SparkSession
    encoded: DataFrame
    """The rows, see `Records.encode_to_compare`."""
    layout: Records
    policy: Policy
    topic: Topic | None
    last: Log | None
    """The topic's offsets and the digest of its rows after the last run, None unless the topic is still there."""
    seed: int
    """Of the hashes in `encoded`, see `seed_of`."""
    request: Request
    gets_partitions: bool = False
    """Whether the topic gets partitions before the changes are written. A snapshot has no partitions for keys that are where the
    default partitioner places them, and then it would place them elsewhere."""

    @property
    def may_use_snapshot(self) -> bool:
        """Whether the digest and hashes of the rows describe the topic after the run.

        They don't for CDC formats, where a delete is an event with a value, nor if only the latest row of a key is written.
        """
        return not isinstance(self.layout.value_format, ChangelogFormat) and not self.policy.takes_latest

    @property
    def compares_keys_only(self) -> bool:
        """Whether the run writes every row, so that it needs to know only which keys of the topic have no row.

        A plan shows what happens to each key, and a row that meets delete_when is written only if its key is live.
        """
        is_shown = self.request.mode == "preview" or self.request.planned is not None
        policy, has_deletes = self.policy, bool(self.request.options.delete_when)
        return policy.republishes and policy.is_complete and not policy.retracts and not has_deletes and not is_shown

    def checkpointed(self) -> Inputs:
        """The same rows for several queries. A lazy checkpoint saves a pass, but loses the metrics of not_null constraints."""
        return self.observed() if self._is_observed else replace(self, encoded=lazy_checkpoint(self.encoded))

    def observed(self) -> Inputs:
        """The same rows, with the metrics of not_null constraints collected. A query that leaves out its parts without rows would
        leave out the metrics too, and nobody would ever get them."""
        return replace(self, encoded=checkpoint(self.encoded)) if self._is_observed else self

    @property
    def _is_observed(self) -> bool:
        return bool(self.request.not_null or self.request.checks)


@dataclass(frozen=True)
class NextSnapshot:
    """What to store after the changes were written, for the next run."""

    digest: Digest
    """Of the rows."""
    added: int = 0
    """See `snapshots.Metadata`. If greater than 0, the changes are added to the snapshot, which is replaced otherwise."""
    log: DataFrame | None = None
    """What is stored before the changes are added, if the run has read the topic into a snapshot."""


@dataclass(frozen=True)
class Comparison:
    """The changes of a run."""

    changes: Changes
    next_snapshot: NextSnapshot | None = None
    """None: the snapshot, if there is one, stays as it is."""
    unchanged_digest: str | None = None
    """Of the rows, if nothing is written."""

    @property
    def digest_after(self) -> str | None:
        """Of the rows, if the topic consists of exactly the rows after the run and the digest was computed."""
        if self.next_snapshot is None:
            return self.unchanged_digest
        return self.next_snapshot.digest.text if self.changes.makes_equal else None


def seed_of(last: Log | None, planned: int | None = None) -> int:
    """The seed of the hashes of a run: that of the last run's digest and snapshot, or a new one if they can't be used.

    Args:
        planned: the seed of the plan that is applied, whose digest has it.
    """
    if last is not None and last.is_comparable and last.seed is not None:
        return last.seed
    return secrets.randbits(63) if planned is None else planned


def compare(inputs: Inputs) -> Comparison:
    """The changes that make the topic equal to the rows, in the cheapest way that finds all of them."""
    topic = inputs.topic
    if topic is None or topic.is_empty:
        return _with_empty_topic(inputs)
    if not inputs.may_use_snapshot:
        return _with_topic(inputs.observed(), topic)

    inputs = inputs.checkpointed()
    last = inputs.last if inputs.last is not None and inputs.last.is_comparable else None
    snapshot = _snapshot(inputs, topic, last) if inputs.compares_keys_only else None
    if snapshot is not None and (found := _with_keys(inputs, snapshot)):
        return found
    of_rows = digest.of_rows(inputs.encoded)
    # Rows without a key are never equal: guards must count and show them.
    if last is not None and last.digest == of_rows.text and not of_rows.nulls and not inputs.policy.republishes:
        return _without_changes(inputs, of_rows, last.live_keys or 0)
    snapshot = _snapshot(inputs, topic, last)
    if snapshot is not None and (found := _with_snapshot(inputs, of_rows, snapshot)):
        return found
    return _with_topic(inputs, topic, of_rows)


def _snapshot(inputs: Inputs, topic: Topic, last: Log | None) -> Snapshot | None:
    """The snapshot of the last run, not verified yet; None if there is none or if the topic is small."""
    if last is None or inputs.gets_partitions or not snapshots.is_worth_it(topic):
        return None
    progress.step("compare")
    request = inputs.request
    return snapshots.load(inputs.spark, request.relation, topic, last.digest or "", request.places_by_default)


def _with_empty_topic(inputs: Inputs) -> Comparison:
    if inputs.policy.takes_latest:
        return Comparison(difference.with_latest(inputs.observed().encoded, None, inputs.layout, inputs.policy))
    changes, of_rows = difference.with_nothing(inputs.checkpointed().encoded, inputs.policy)
    return Comparison(changes, NextSnapshot(of_rows) if inputs.may_use_snapshot else None)


def _without_changes(inputs: Inputs, of_rows: Digest, live_keys: int) -> Comparison:
    changes = difference.none(inputs.encoded, of_rows.rows, live_keys, inputs.policy)
    return Comparison(changes, unchanged_digest=of_rows.text)


def _with_snapshot(inputs: Inputs, of_rows: Digest, snapshot: Snapshot) -> Comparison | None:
    """The changes by the snapshot; None if it does not add up."""
    rows, policy = inputs.encoded, inputs.policy
    if not policy.is_complete or policy.republishes:
        return _with_all_keys(inputs, of_rows, snapshot.latest()) if snapshot.is_verified() else None
    if snapshot.fits_into_one_task(of_rows.rows):
        changes, sums = snapshot.in_one_task(
            lambda latest: difference.in_part(rows.coalesce(1), latest, inputs.layout, policy, of_rows.rows, snapshot.keys)
        )
        return _added(inputs, of_rows, snapshot, changes, changes.to_write) if changes and sums else None
    part, sums = snapshot.differing(rows)
    if sums is None:
        return None
    if part is None:
        return _with_all_keys(inputs, of_rows, snapshot.latest())
    rows = part.rows(rows, have_null_keys=of_rows.nulls > 0)
    changes = difference.in_part(rows, snapshot.latest(part), inputs.layout, policy, of_rows.rows, snapshot.keys)
    return _added(inputs, of_rows, snapshot, changes, part.number)


def _added(inputs: Inputs, of_rows: Digest, snapshot: Snapshot, changes: Changes, entries: int) -> Comparison:
    """The comparison after which the changes, about so many entries, are added to the snapshot."""
    stored = None if snapshot.is_stored else snapshot.log
    if changes.to_write:
        return Comparison(changes, NextSnapshot(of_rows, snapshot.added_with(entries), stored))
    if stored is not None:
        return Comparison(changes, NextSnapshot(of_rows, 0, stored))
    # The digests differ without a change: there are rows without a key, or rows to delete that the topic does not have.
    return Comparison(changes, unchanged_digest=inputs.last.digest if inputs.last else None)


def _with_keys(inputs: Inputs, snapshot: Snapshot) -> Comparison | None:
    """The changes of a full refresh; None if the snapshot does not add up, or if its keys have to stay in other partitions."""
    changes, of_rows = difference.with_nothing(inputs.encoded, inputs.policy)
    rows = changes.frame

    def compared(latest: DataFrame, part: DataFrame) -> Changes:
        return difference.with_keys(changes, latest, part, inputs.layout, snapshot.keys)

    if snapshot.fits_into_one_task(of_rows.rows):
        found, sums = snapshot.in_one_task(lambda latest: compared(latest, rows.coalesce(1)))
    else:
        part, sums = snapshot.differing(inputs.encoded)
        # A run with duplicates is refused; its rows have no `key_hash` any more.
        of_part = rows if part is None or changes[Kind.DUPLICATE] else part.entries(rows)
        found = compared(snapshot.latest(part), of_part) if sums else None
    if found is None or sums is None or sums.elsewhere:
        return None
    return Comparison(found, NextSnapshot(of_rows))


def _with_all_keys(inputs: Inputs, of_rows: Digest, latest: DataFrame) -> Comparison:
    changes = difference.with_latest(inputs.encoded, latest, inputs.layout, inputs.policy, keeps_all_keys=True)
    return Comparison(changes, NextSnapshot(of_rows))


def _with_topic(inputs: Inputs, topic: Topic, of_rows: Digest | None = None) -> Comparison:
    """The changes by the topic itself. A large topic without split keys is read into a snapshot, which is compared."""
    request = inputs.request
    records = sum(topic.end[partition] - topic.first[partition] for partition in topic.end)
    # Without the digest the rows have not been counted.
    progress.step("compare", records + of_rows.rows if of_rows else None)
    found = change_events.with_tombstones(scan.read(inputs.spark, request.kafka, topic), inputs.layout)
    latest = scan.latest(found, split_keys=False, seed=inputs.seed)
    if of_rows is not None and snapshots.is_worth_it(topic):
        snapshot, split_keys = snapshots.of_topic(latest)
        if not split_keys and (comparison := _with_snapshot(inputs, of_rows, snapshot)):
            return comparison
    else:
        changes = difference.with_latest(inputs.encoded, latest, inputs.layout, inputs.policy, of_rows is not None)
        if not changes.split_keys:
            return Comparison(changes, NextSnapshot(of_rows) if of_rows is not None else None)
    latest = scan.latest(found, split_keys=True, seed=inputs.seed)
    changes = difference.with_latest(inputs.encoded, latest, inputs.layout, inputs.policy, of_rows is not None)
    if not changes.split_keys:
        return Comparison(changes, NextSnapshot(of_rows) if of_rows is not None else None)
    number = changes.stale_values
    cleanup = f" The run writes {count_of(number, 'tombstone')} for the other values." if number else ""
    warn(
        f"model {request.model}: {count_of(changes.split_keys, 'key', 'has', 'have')} values in more than one partition of "
        f"topic '{topic.name}', because another writer placed them there or partitions were added. The value with the "
        f"latest timestamp is compared.{cleanup}"
    )
    return Comparison(changes)


def save_snapshot(spark: SparkSession, comparison: Comparison, end: Log | None, topic: Topic, request: Request) -> None:
    """Store what the topic has now for the next run.

    Args:
        end: where the topic ends after the run; None if somebody else wrote to it, and then nothing is stored.
        topic: as it was compared.
    """
    changes, next_snapshot = comparison.changes, comparison.next_snapshot
    if end is None or next_snapshot is None or not request.places_by_default:
        return
    if not changes.makes_equal or changes.keys_after < snapshots.FEWEST_ROWS or not snapshots.can_be_stored(spark):
        return
    metadata = snapshots.Metadata(
        topic=snapshots.fingerprint(replace(topic, first=end.first, end=end.end)),
        digest=next_snapshot.digest,
        keys=changes.keys_after,
        added=next_snapshot.added,
    )
    if next_snapshot.log is not None:
        log = snapshot_log.with_changes(next_snapshot.log, changes)
        snapshots.save(spark, request.relation, log, metadata)
    elif next_snapshot.added:
        snapshots.add(spark, request.relation, snapshot_log.of_changes(changes), metadata)
    else:
        snapshots.save(spark, request.relation, snapshot_log.of_topic(changes), metadata)
