"""plan_mask: what a sample shows of keys, of new and of old values."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.types import ArrayType, DataType, IntegerType, StringType, StructField, StructType

from dbt.adapters.upsert_kafka import formats
from dbt.adapters.upsert_kafka.formats import Field, Side
from dbt.adapters.upsert_kafka.formats.records import MASKED, Records
from dbt.adapters.upsert_kafka.publish.masks import Mask

PERSON = ArrayType(StructType([StructField("Email", StringType()), StructField("city", StringType())]))
COLUMNS: dict[str, DataType] = {"id": IntegerType(), "name": StringType(), "people": PERSON, "email": StringType()}
ID, EMAIL = {"id": 1}, {"email": "ann@x"}


def records(form: str = "json", key: str = "id", columns: str = "id name people email", **more: Any) -> Records:
    def side(role: Any, names: list[str]) -> Side:
        return Side(role, "shop", tuple(Field(name, name, COLUMNS[name], True) for name in names), {})

    more = {"mask": frozenset({"email"}), "knows_keys": True, **more}
    names = columns.split()
    return Records(side("key", [key]), side("value", names), formats.get(form), formats.get(form), tuple(names), **more)


@pytest.mark.parametrize(
    ("layout", "key", "is_row", "shown"),
    [
        (records(), ID, True, ID),
        (records(), ID, False, ID),
        (records(), EMAIL, False, {"email": MASKED}),
        (records(knows_keys=False), ID, True, ID),
        (records(knows_keys=False), ID, False, MASKED),
        (records(knows_keys=False), EMAIL, False, MASKED),
        (records(key="email"), EMAIL, True, {"email": MASKED}),
        (records(), "ann@x", False, MASKED),
        (records("csv"), "1", True, "1"),
        (records("csv", knows_keys=False), "ann@x", False, MASKED),
        (records("csv", key="email"), "ann@x", True, MASKED),
        (records(), None, True, None),
        (records(mask=frozenset(), knows_keys=False), "ann@x", False, "ann@x"),
    ],
)
def test_keys(layout: Records, key: Any, is_row: bool, shown: Any) -> None:
    assert Mask(layout, layout).key(key, is_row) == shown


def test_values() -> None:
    mask = Mask(records(), records())
    nested = [{"Email": "ann@x", "city": "Bern"}]
    shown = {"id": 1, "people": [{"Email": MASKED, "city": "Bern"}], "email": MASKED}
    assert mask.value({"id": 1, "people": nested, "email": "ann@x"}) == shown
    assert mask.value("0x00") == MASKED, "can't be decoded"
    csv = records("csv", columns="id name")
    assert (Mask(csv, csv).value("1,ann"), Mask(csv, csv).old_value("1,ann@x")) == ("1,ann", MASKED)
    with_people = records("csv", columns="id people")
    assert Mask(with_people, with_people).value("1,ann@x") == MASKED, "the field is in a column"


def test_old_values() -> None:
    new = records(columns="id email")
    old = {"id": 1, "mail": "ann@x", "email": "ann@x"}
    assert Mask(new, new).old_value(old) == {"id": 1, "mail": MASKED, "email": MASKED}
    events = records("debezium-json", columns="id email")
    assert Mask(events, events).old_value({"before": None, "after": old, "op": "c"}) == {
        "before": None,
        "after": {"id": 1, "mail": MASKED, "email": MASKED},
        "op": "c",
    }
    avro = records("avro", columns="id name")
    assert Mask(avro, avro).old_value({"id": 1, "name": "ann"}) == {"id": 1, "name": "ann"}
    assert Mask(avro, avro, knows_old=False).old_value({"id": 1, "name": "ann@x"}) == MASKED, "decoded with other columns"
