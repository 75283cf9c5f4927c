"""What is announced to consumers, from two layouts."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from dbt.adapters.upsert_kafka.publish.announce import differences, layout_change, time_zone_change
from dbt.adapters.upsert_kafka.spark import time_zone
from dbt.adapters.upsert_kafka.state.record import Layout


def layout(
    columns: str = "id int, name string, price int", format_: str = "json", zone: str | None = "UTC", **options: str
) -> Layout:
    pairs = tuple((name, kind) for name, kind in (column.split() for column in columns.split(", ")))
    value = json.dumps({"format": format_, "fields": pairs, "options": options})
    return Layout("{}", value, pairs, zone)


@pytest.mark.parametrize(
    ("now", "found"),
    [
        (layout(), ""),
        (layout("id int, full_name string, price int"), "renamed: name (now full_name)"),
        (layout("id int, price int"), "removed: name"),
        (layout("id int, price int, label string"), "removed: name; added: label"),
        (layout("id int, name string, price bigint"), "of another type: price (int to bigint)"),
        (layout("id int, NAME string, price int"), "renamed: name (now NAME)"),
        (layout("price int, id int, name string"), ""),
        (layout(format_="avro"), "value format: json to avro"),
        (layout(timestamp_format_standard="ISO-8601"), "options of value format json: timestamp_format_standard"),
        (layout("id int, name string, price int, vat int"), "added: vat"),
    ],
)
def test_differences_name_what_a_consumer_sees(now: Layout, found: str) -> None:
    assert str(differences(layout(), now)) == found


@pytest.mark.parametrize("format_", ["csv", "avro"])
@pytest.mark.parametrize(
    ("columns", "found"),
    [
        ("id int, name string, price int", ""),
        ("id int, price int, name string", "in another order: id, price, name"),
        ("id int, full_name string, price int", "renamed: name (now full_name)"),
        ("price int, full_name string, id int", "renamed: name (now full_name); in another order: price, full_name, id"),
        ("id int, vat int, name string, price int", "added: vat"),
    ],
)
def test_order_counts_in_a_format_without_names(format_: str, columns: str, found: str) -> None:
    assert str(differences(layout(format_=format_), layout(columns, format_))) == found
    text = layout_change(layout(format_=format_), layout(columns, format_), "t")
    assert (text is not None) == bool(found)
    if "order" in found or "added" in found:
        assert text is not None and "consumers that know columns by their place read wrong values or fail" in text


def test_column_that_leaves_the_value_is_announced() -> None:
    """value_fields_include ALL to EXCEPT_KEY: the columns of the SELECT are the same."""
    all_fields = layout()
    except_key = replace(all_fields, value=layout("name string, price int").value)
    assert str(differences(all_fields, except_key)) == "removed: id"
    assert str(differences(except_key, all_fields)) == "added: id"


def test_other_key_is_announced() -> None:
    keys = (json.dumps({"format": "json", "fields": [[name, "int"]], "options": {}}) for name in ("id", "price"))
    before, now = (replace(layout(), key=key) for key in keys)
    text = layout_change(before, now, "t")
    assert text is not None and "(key: from id (int) to price (int)): consumers find the rows under other keys." in text


def test_layout_of_a_view_has_no_format_and_maybe_another_case() -> None:
    view = replace(layout("id int, Name string, price int"), key="{}", value="{}")
    assert not differences(view, layout("id int, name string, price int", "csv"))
    assert str(differences(view, layout("id int, price int, name string", "csv"))) == "in another order: id, price, name"


def test_announcement_says_what_it_means() -> None:
    text = layout_change(layout(), layout("id int, price bigint", "csv"), "shop.orders")
    assert text is not None
    assert text.startswith("the messages of topic 'shop.orders' change for consumers (value format: json to csv; removed: name; ")
    assert (
        "fail on new records; consumers find no value under the old names; consumers that expect the old types may fail" in text
    )


def test_added_column_is_not_announced() -> None:
    assert layout_change(layout(), layout("id int, name string, price int, vat int"), "t") is None
    assert layout_change(None, layout(), "t") is None


@pytest.mark.parametrize(("machine", "announced"), [("Europe/Berlin", True), ("UTC", False)])
def test_records_of_earlier_versions_have_the_zone_of_the_machine(
    machine: str, announced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with time_zone.as_process_zone(machine):
        text = time_zone_change(layout(zone=None), "UTC", 3)
    assert (text is not None) is announced
    assert text is None or text.startswith("earlier versions used the time zone of the machine (Europe/Berlin on this one)")


def test_process_zone_is_restored() -> None:
    before = time_zone.machine_zone()
    with time_zone.as_process_zone("Asia/Tokyo"):
        assert time_zone.machine_zone() == "Asia/Tokyo"
        with time_zone.as_process_zone("Asia/Tokyo"):
            pass
        assert time_zone.machine_zone() == "Asia/Tokyo"
    with time_zone.as_process_zone("+02:00"):
        assert time_zone.machine_zone() == before
    assert time_zone.machine_zone() == before
