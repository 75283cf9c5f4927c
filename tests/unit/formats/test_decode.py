"""Bytes of messages as text for people."""

from __future__ import annotations

import io
import json
from decimal import Decimal

import fastavro
import pytest

from dbt.adapters.upsert_kafka.formats.decode import Decoder, shown
from dbt.adapters.upsert_kafka.inspection.spark_types import parse_type
from dbt.adapters.upsert_kafka.sql import type_text

SCHEMA = fastavro.parse_schema(
    {
        "type": "record",
        "name": "r",
        "fields": [
            {"name": "id", "type": "int"},
            {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        ],
    }
)


def avro(**record: object) -> bytes:
    written = io.BytesIO()
    fastavro.schemaless_writer(written, SCHEMA, record)
    return written.getvalue()


def test_avro_is_decoded_with_its_schema() -> None:
    data = avro(id=7, price=Decimal("1.50"))
    assert shown(Decoder("avro", schema=SCHEMA)(data)) == '{"id": 7, "price": 1.50}'  # type: ignore[arg-type]
    registered = Decoder("avro-confluent", registered={9: SCHEMA})
    assert registered(b"\x00\x00\x00\x00\x09" + data) == {"id": 7, "price": Decimal("1.50")}


def test_bytes_that_cannot_be_decoded_are_shown_as_digits() -> None:
    assert Decoder("avro", schema=SCHEMA)(b"\x0e") == "0x0e"  # type: ignore[arg-type]
    assert Decoder("avro")(b"\x0e") == "0x0e"
    assert Decoder("avro-confluent", registered={9: SCHEMA})(b"\x00\x00\x00\x00\x08\x0e") == "0x00000000080e"
    assert Decoder("avro-confluent", registered={9: SCHEMA})(b"text") == "text"


def test_json_numbers_keep_their_text() -> None:
    data = b'{"a":55.00,"b":1E+1,"c":[1.8753E+5,-0,12345678901234567890],"a2":10}'
    assert Decoder("json").text(data) == data.decode()
    assert shown(Decoder("json")(data)).replace(" ", "") == data.decode()
    pretty = b'{\n  "a": 55.00\n}'
    assert Decoder("json").text(pretty) == '{"a": 55.00}'
    assert Decoder("json-schema-confluent").text(b"\x00\x00\x00\x00\x01" + data) == data.decode()


@pytest.mark.parametrize("data", [b'{"a":NaN}', b"[" * 500 + b"]" * 500, b"[" * 90_000])
def test_text_that_is_no_usable_json_is_text(data: bytes) -> None:
    assert Decoder("json")(data) == Decoder("json").text(data) == data.decode()


@pytest.mark.parametrize("format_", ["json", "debezium-json"])
def test_json_is_an_object_and_broken_json_is_text(format_: str) -> None:
    assert Decoder(format_)(json.dumps({"a": 1}).encode()) == {"a": 1}
    assert Decoder(format_)(b"{broken") == "{broken"
    assert Decoder(format_)(None) is None


@pytest.mark.parametrize(
    "text",
    [
        "int",
        "timestamp_ntz",
        "array<struct<`a`:decimal(3,1),`b`:map<string,array<bigint>>>>",
        "struct<`x, y`:date,`<``>`:binary>",
    ],
)
def test_type_text_is_parsed(text: str) -> None:
    assert type_text(parse_type(text)) == text


@pytest.mark.parametrize("text", ["interval", "array<", "map<string>", ""])
def test_text_that_is_no_type_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="is not a type of Spark"):
        parse_type(text)
