"""The SQL that turns a topic's raw records into rows: the columns of the messages and Kafka's metadata.

A `kafka_source` and the view of a `kafka` model select from it. A message that can't be decoded is an error that names topic,
partition and offset. Leaves to `formats.records` which columns are in key and value and to `formats` how bytes are decoded.
"""

from __future__ import annotations

from dbt.adapters.upsert_kafka.catalog import name, views
from dbt.adapters.upsert_kafka.formats import SKIP_HINT, Format, Side
from dbt.adapters.upsert_kafka.formats.changelog import LIVE, ROW, ROW_KIND, ChangelogFormat
from dbt.adapters.upsert_kafka.formats.records import KEY, VALUE, Records
from dbt.adapters.upsert_kafka.options.table import KAFKA
from dbt.adapters.upsert_kafka.relation import UpsertKafkaRelation
from dbt.adapters.upsert_kafka.sql import quote_identifier, quote_literal

METADATA = {
    "kafka_topic": "topic",
    "kafka_partition": "partition",
    "kafka_offset": "offset",
    "kafka_timestamp": "timestamp",
    "kafka_key": "key",
    "kafka_headers": "headers",
}


def view_query(layout: Records, relation: UpsertKafkaRelation, materialization: str, skips: bool) -> str:
    """The SELECT of a model's view: all records of a `kafka` model, the last record per key of an `upsert_kafka` model.

    Args:
        skips: leave out messages that can't be decoded instead of failing.
    """
    if materialization != KAFKA:
        return views.last_per_key(relation, layout, skips)
    return f"SELECT * FROM {query(layout, name(relation.topic_table), per_key=False, skips=skips)}"


def query(layout: Records, table: str, per_key: bool, skips: bool = False) -> str:
    """A subquery over the raw records `table` with the columns and the metadata.

    Args:
        per_key: select the last record of each key instead of all records.
        skips: leave out messages that can't be decoded instead of failing.
    """
    source = f"(SELECT * FROM {table} WHERE {readable(layout, images=not per_key)})" if skips else table
    if isinstance(layout.value_format, ChangelogFormat):
        return _current_rows(layout, source) if per_key else _changes(layout, source)
    # The last record of each key is parsed where it is selected, see `views`.
    records = views.last_records(source, values_first=False, parsed=layout.parsed()) if per_key else source
    with_value = f"(SELECT * FROM {records} WHERE {_has_value(layout)})"
    parsed = with_value if per_key else layout.parse(with_value)
    parts = [f"{_checked(*side, f'parsed_{part}')} AS {part}" for part, side in layout.read_sides().items()]
    picked = ", ".join([*layout.picked(), *_metadata()])
    return f"(SELECT {picked} FROM (SELECT *, {', '.join(parts)} FROM {parsed}))"


def _changes(layout: Records, source: str) -> str:
    """All changes of a CDC format, with their row kind."""
    picked = [f"c.{ROW_KIND} AS {ROW_KIND}", *_columns(layout, f"c.{ROW}")]
    return f"(SELECT {', '.join([*picked, *_metadata()])} FROM {_exploded(layout, source, images=True)})"


def _current_rows(layout: Records, source: str) -> str:
    """The last change of each key: by offset inside a partition, by timestamp between partitions, with deletes before rows."""
    keys = ", ".join(f"c.{ROW}.{quote_identifier(field.name)} AS k{i}" for i, field in enumerate(layout.key.fields))
    names = ", ".join(f"k{i}" for i in range(len(layout.key.fields)))
    change = "struct(c, topic, partition, offset, timestamp, key, headers)"
    last = (
        f"SELECT {names}, max_by(r, struct(r.timestamp, r.c.{ROW_KIND} IN {LIVE}, r.topic, r.partition)) AS r FROM ("
        f"SELECT {names}, max_by(r, struct(r.offset, pos)) AS r FROM ("
        f"SELECT {keys}, pos, {change} AS r FROM {_exploded(layout, source, images=False)}"
        f") GROUP BY {names}, r.topic, r.partition) GROUP BY {names}"
    )
    picked = [*_columns(layout, f"r.c.{ROW}"), *_metadata("r.")]
    return f"(SELECT {', '.join(picked)} FROM ({last}) WHERE r.c.{ROW_KIND} IN {LIVE})"


def _exploded(layout: Records, source: str, images: bool) -> str:
    """One row per change of each message; see `ChangelogFormat.changes` for `images`."""
    format = layout.value_format
    assert isinstance(format, ChangelogFormat)
    hint = f" ({format.missing_image})" if images else ""
    changes = f"coalesce({format.changes(layout.value, VALUE, images)}, {_raise_error(format, layout.value, VALUE, hint)})"
    return f"(SELECT *, posexplode({changes}) AS (pos, c) FROM {source} WHERE octet_length(value) > 0)"


def _checked(format: Format, side: Side, payload: str, parsed: str) -> str:
    """The decoded payload, or an error that names the message; `raw` can decode every message."""
    if format.name == "raw":
        return format.decode(side, payload)
    return f"coalesce({format.restore(side.lenient(), payload, parsed)}, {_raise_error(format, side, payload)})"


def _raise_error(format: Format, side: Side, payload: str, hint: str = "") -> str:
    where = "'Topic ', topic, ', partition ', partition, ', offset ', offset"
    what = quote_literal(f": the {side.role} is not {format.name} with the columns of this model{hint}: ")
    return f"raise_error(concat({where}, {what}, left(CAST({payload} AS STRING), 200), {quote_literal(SKIP_HINT)}))"


def readable(layout: Records, images: bool) -> str:
    """A condition over the raw records: the message can be decoded, or has no value.

    Args:
        images: see `ChangelogFormat.changes`.
    """
    if isinstance(layout.value_format, ChangelogFormat):
        decoded = layout.value_format.changes(layout.value, VALUE, images)
        return f"coalesce(octet_length(value), 0) = 0 OR {decoded} IS NOT NULL"
    tests = [f"(value IS NULL OR {layout.value_format.decode(layout.value.lenient(), VALUE)} IS NOT NULL)"]
    if layout.reads_key:
        tests.append(f"(key IS NULL OR {layout.key_format.decode(layout.key.lenient(), KEY)} IS NOT NULL)")
    return " AND ".join(tests)


def _has_value(layout: Records) -> str:
    """A condition over the raw records: the message has a row. A comment of csv has none; for `raw` null is a value."""
    if layout.value_format.name == "raw":
        return "true"
    comments = " AND NOT startswith(value, X'23')" if layout.value.options.get("allow_comments") else ""
    return f"value IS NOT NULL{comments}"


def _columns(layout: Records, row: str) -> list[str]:
    return [f"{row}.{quote_identifier(f.name)} AS {quote_identifier(f.column)}" for f in layout.value.fields]


def _metadata(prefix: str = "") -> list[str]:
    return [f"{prefix}{field} AS {column}" for column, field in METADATA.items()]
