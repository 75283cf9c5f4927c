"""Keys and values of messages as text or objects for people: json, csv and raw are text, Avro is decoded with fastavro.

Bytes that can't be decoded are shown as hexadecimal digits, never left out. Independent of Spark: `formats` decodes with Spark.
"""

from __future__ import annotations

import base64
import datetime as dt
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import fastavro

from dbt.adapters.upsert_kafka.formats import Format, Side, avro, exact_json
from dbt.adapters.upsert_kafka.formats.registered import HEADER_BYTES, SCHEMAS

MAGIC = b"\x00"


@dataclass(frozen=True)
class Decoder:
    """How one side of a topic's messages is decoded."""

    format: str = "raw"
    schema: Mapping[str, Any] | None = None
    """The parsed Avro schema of format avro."""
    registered: Mapping[int, Any] = field(default_factory=dict)
    """The parsed schemas of format avro-confluent, by their ids."""

    def __call__(self, data: bytes | None) -> Any:
        """The decoded object (Avro, JSON), or text."""
        if data is None:
            return None
        if self.format in ("avro", "avro-confluent"):
            return self._avro(data)
        text = plain_text(data)
        if self.format == "csv" or self.format == "raw":
            return text
        is_framed = self.format == "json-schema-confluent" and data.startswith(MAGIC)
        try:
            return exact_json.loads(data[HEADER_BYTES:] if is_framed else data)
        except ValueError:
            return text

    def text(self, data: bytes) -> str:
        """In one line: json as the message has it, Avro as JSON."""
        value = self(data)
        if self.format in ("avro", "avro-confluent", "csv", "raw") or isinstance(value, str):
            return shown(value)
        is_framed = self.format == "json-schema-confluent" and data.startswith(MAGIC)
        raw = (data[HEADER_BYTES:] if is_framed else data).decode(errors="replace")
        # JSON with line breaks, or bytes in another character set.
        return raw if raw.isprintable() else shown(value)

    def _avro(self, data: bytes) -> Any:
        schema, body = self.schema, data
        if self.format == "avro-confluent":
            if not data.startswith(MAGIC) or len(data) < HEADER_BYTES:
                return plain_text(data)
            schema, body = self.registered.get(int.from_bytes(data[1:HEADER_BYTES], "big")), data[HEADER_BYTES:]
        if schema is None:
            return f"0x{data.hex()}"
        try:
            return fastavro.schemaless_reader(io.BytesIO(body), schema, None)  # type: ignore[arg-type]
        except (EOFError, ValueError, IndexError, UnicodeDecodeError, OverflowError):
            return f"0x{data.hex()}"


def decoder_of(form: Format, side: Side) -> Decoder:
    """How the messages of one side are decoded.

    Args:
        side: prepared, if its format needs a schema registry.
    """
    if form.name == "avro":
        return Decoder(form.name, schema=fastavro.parse_schema(json.loads(avro.avro_schema(side))))  # type: ignore[arg-type]
    if form.name == "avro-confluent":
        known = side.options.get(SCHEMAS) or {}
        return Decoder(form.name, registered={number: fastavro.parse_schema(json.loads(text)) for number, text in known.items()})
    return Decoder(form.name)


def plain_text(data: bytes) -> str:
    """UTF-8 as text, with escapes for characters that can't be printed; other bytes as hexadecimal digits.

    >>> plain_text(b"abc"), plain_text(b"a\\nb"), plain_text(b"\\xff\\x00")
    ('abc', '"a\\\\nb"', '0xff00')
    """
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"0x{data.hex()}"
    return text if text.isprintable() else json.dumps(text, ensure_ascii=False)


def shown(value: Any) -> str:
    """A decoded value in one line."""
    return value if isinstance(value, str) else exact_json.dumps(value, as_json)


def as_json(value: Any) -> Any:
    """A value of Avro as JSON has it; numbers are for `exact_json`."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    return str(value)
