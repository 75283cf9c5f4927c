"""Checks the settings of one model: each value against its type, then what options need, exclude and leave to whom.

Goes on after a mistake, so that one run names them all, and leaves out what is only the echo of another mistake.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dbt.adapters.upsert_kafka import kafka_properties
from dbt.adapters.upsert_kafka.options import table
from dbt.adapters.upsert_kafka.options.dialects import ClientProperty, Collected, Known, Setting, SideOption, nearest, shown
from dbt.adapters.upsert_kafka.options.table import (
    CDC_FORMATS,
    KAFKA,
    KAFKA_SOURCE,
    OPTIONS,
    SINKS,
    UPSERT_KAFKA,
    Need,
    Option,
)
from dbt.adapters.upsert_kafka.options.values import plain

_BY_NAME = {o.name: o for o in OPTIONS}
GROUP = "properties group.id"
NOT_YET = "is not available yet"


@dataclass
class Checked:
    """Values by the names of ModelOptions, or the problems that they have."""

    values: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def check(materialization: str, collected: Collected) -> Checked:
    """Check all settings; problems are sentences `place=value: what is allowed`."""
    return _Check(materialization, collected).run()


class _Check:
    def __init__(self, materialization: str, collected: Collected) -> None:
        self.materialization = materialization
        self.problems = list(collected.problems)
        self.warnings = list(collected.warnings)
        self.settings = collected.settings
        self.taken: dict[Known, Any] = {}
        self.places: dict[str, str] = {}
        self.whats: dict[str, str] = {}
        """Place and value, as the user wrote them."""
        self.failed: set[str] = set()
        """Options with a problem of their own: others don't complain about them."""

    def run(self) -> Checked:
        for setting in self.settings:
            self._take(setting)
        self._split_partitioner()
        self.given = {known.name: value for known, value in self.taken.items() if isinstance(known, Option)}
        self.properties = {known.key: value for known, value in self.taken.items() if isinstance(known, ClientProperty)}
        values = self._with_defaults()
        for name in self.given:
            self._check_rules(_BY_NAME[name], values)
        self._check_required(values)
        self._check_topics(values)
        values["properties"] = self.properties
        self._check_properties(values)
        self._check_topic_config(values)
        self._check_format_options(values)
        for side in ("key", "value"):
            values[f"{side}_format_options"] = self._format_options(side, values)
        of_format = values["value_format_options"].get("ignore_parse_errors", False)
        values["ignore_parse_errors"] = values.get("ignore_parse_errors") or of_format
        self._check_available(values)
        return Checked(values, self.problems, self.warnings)

    def _wrong(self, what: str, why: str) -> None:
        self.problems.append(f"{what}: {why}")

    def _take(self, setting: Setting) -> None:
        """Read one value; two places may say the same thing, not two things."""
        known, what = setting.known, f"{setting.place}={shown(setting.raw, setting.known.secret)}"
        try:
            value = plain(setting.raw) if isinstance(known, ClientProperty) else known.type.parse(setting.raw)
        except ValueError as e:
            self._wrong(what, str(e))
            self.failed.add(known.name)
            return
        if known in self.taken and self.taken[known] != value:
            self._wrong(what, f"differs from {self.whats[known.name]}, which is the same option; keep one of them")
            self.failed.add(known.name)
            return
        self.places.setdefault(known.name, setting.place)
        self.whats.setdefault(known.name, what)
        self.taken[known] = value

    def _split_partitioner(self) -> None:
        """Flink writes a custom partitioner's class where Huawei writes `custom` and has the class beside it."""
        partitioner, class_ = _BY_NAME["sink_partitioner"], _BY_NAME["sink_partitioner_class"]
        if "." in self.taken.get(partitioner, ""):
            self._take(Setting(class_, self.places[partitioner.name], self.taken[partitioner]))
            self.taken[partitioner] = "custom"

    def _with_defaults(self) -> dict[str, Any]:
        values = {o.name: o.default_on.get(self.materialization, o.default) for o in OPTIONS if self.materialization in o.on}
        if format_ := self.given.get("format"):
            values["value_format"] = format_
            values["key_format"] = format_ if format_ not in CDC_FORMATS else values["key_format"]
        if self.materialization == KAFKA and self.given.get("value_format", values["value_format"]) in CDC_FORMATS:
            values["update_mode"] = "upsert"
        if self.materialization == KAFKA_SOURCE:
            values["scan_startup_mode"] = "group-offsets" if "group.id" in self.properties else "earliest-offset"
        return values | {GROUP: self.properties.get("group.id")} | self.given

    def _check_rules(self, option: Option, values: Mapping[str, Any]) -> None:
        what, value = self.whats[option.name], values[option.name]
        if self.materialization not in option.on:
            self._wrong(what, self._not_taken(option.on))
            self.failed.add(option.name)
            return
        allowed = option.values_on.get(self.materialization)
        if allowed and value not in allowed:
            self._wrong(what, f"must be one of {', '.join(allowed)} with materialized='{self.materialization}'")
            self.failed.add(option.name)
            return
        by_value = option.value_needs.get(value, ()) if isinstance(value, str) else ()
        for need in (*option.needs, *by_value):
            if self._unmet(need, values):
                now = values.get(need.option)
                self._wrong(what, f"needs {need}" + (f" (it is {plain(now)})" if need.values and now is not None else ""))
        for other in option.excludes:
            if self.materialization in other.on and other.met(values):
                self._wrong(what, f"can't be together with {other}; keep one of them")
        if option.no_effect:
            self.warnings.append(f"{self.places[option.name]} has no effect: {option.no_effect}")

    def _unmet(self, need: Need, values: Mapping[str, Any]) -> bool:
        return self.materialization in need.on and need.option not in self.failed and not need.met(values)

    def _not_taken(self, on: tuple[str, ...]) -> str:
        return f"is an option of {' and '.join(on)}; {self.materialization} does not take it"

    def _check_required(self, values: Mapping[str, Any]) -> None:
        for option in OPTIONS:
            if self.materialization in option.required_on and option.name not in self.failed and not values[option.name]:
                self._wrong(option.name, f"is required by {self.materialization}. {option.meaning}")
        if self.materialization == KAFKA_SOURCE and not {"topic", "topic_pattern"} & (self.given.keys() | self.failed):
            self._wrong("topic", "kafka_source needs topic or topic_pattern")

    def _check_topics(self, values: Mapping[str, Any]) -> None:
        several = ";" in (values["topic"] or "")
        if self.materialization in SINKS and several:
            self._wrong(self.whats["topic"], "a sink writes one topic; several topics are for kafka_source")
        for name in ("scan_startup_specific_offsets", "scan_bounded_specific_offsets"):
            if values.get(name) and (several or values.get("topic_pattern")):
                self._wrong(self.whats[name], "offsets of partitions need a single topic")

    def _check_properties(self, values: Mapping[str, Any]) -> None:
        owned = kafka_properties.OWNED_UNDER_EXACTLY_ONCE if values.get("sink_delivery_guarantee") == "exactly-once" else {}
        for name, value in self.properties.items():
            place, what = self.places[ClientProperty(name).name], self.whats[ClientProperty(name).name]
            if reason := kafka_properties.REFUSED.get(name) or owned.get(name):
                self._wrong(what, f"can't be set: {reason}")
            elif kafka_properties.holds_secret(name) and "${" not in value:
                self._wrong(what, f"{table.NO_SECRET} `kafka` of the profile, or refer to it by a config provider")
            elif wrong := kafka_properties.problem(name, value):
                self._wrong(what, wrong)
            elif not kafka_properties.is_known(name):
                self.warnings.append(f"{place}: no Kafka client knows this property{_mean(kafka_properties.nearest(name))}")
            elif name == "auto.offset.reset":
                self._check_reset(what, value, values)
            elif name == "isolation.level" and value == "read_uncommitted" and self.materialization in SINKS:
                self._wrong(what, "can't be set: a topic is compared as committed readers see it")
            elif name == "partitioner.class" and values.get("sink_partitioner") not in (None, "default"):
                self._wrong(self.whats["sink_partitioner"], f"can't be together with {place}; keep one of them")

    def _check_reset(self, what: str, value: str, values: Mapping[str, Any]) -> None:
        if values.get("scan_startup_mode") != "group-offsets":
            self._wrong(what, "can't be set: scan_startup_mode decides where reading starts; it is for group-offsets")
        elif value not in ("earliest", "latest", "none"):
            self._wrong(what, "must be one of earliest, latest, none")

    def _check_topic_config(self, values: Mapping[str, Any]) -> None:
        config = values.get("topic_config") or {}
        for name in config:
            if name not in kafka_properties.TOPIC_CONFIGS:
                near = nearest(name, sorted(kafka_properties.TOPIC_CONFIGS))
                self.warnings.append(f"topic_config {name}: Kafka has no such topic setting{_mean(near)}")
        policy = config.get("cleanup.policy", "compact")
        if self.materialization == UPSERT_KAFKA and "compact" not in policy:
            self.warnings.append(
                f"topic_config cleanup.policy={policy!r}: without compact, rows that stay the same for long are lost"
            )

    def _check_format_options(self, values: Mapping[str, Any]) -> None:
        formats = {side: values[f"{side}_format"] for side in ("key", "value")}
        unsure = {side for side in formats if {"format", f"{side}_format"} & self.failed}
        for known in self._side_options():
            what = self.whats[known.name]
            sides = {known.side} if known.side else {"key", "value"}
            if self.materialization not in known.option.on:
                self._wrong(what, self._not_taken(known.option.on))
            elif not unsure & sides and known.format not in {formats[side] for side in sides}:
                now = ", ".join(f"{side}_format is {formats[side]}" for side in sorted(sides))
                self._wrong(what, f"needs {known.side + '_' if known.side else ''}format={known.format} ({now})")
            elif known.side == "key" and not values["unique_key"] and "unique_key" not in self.failed:
                self._wrong(what, "needs unique_key")
            elif known.option.per_side and not known.side and values["unique_key"] and set(formats.values()) == {known.format}:
                self._wrong(what, f"key and value can't share it; set key_{known.name} and value_{known.name}")
            elif table.is_later(table.underscored(f"{known.format}.{known.option.name}"), self.taken[known]):
                self._wrong(what, NOT_YET)
            elif known.option.no_effect:
                self.warnings.append(f"{self.places[known.name]} has no effect: {known.option.no_effect}")

    def _format_options(self, side: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """The options of one side's format by their short names; one for this side wins over one for both."""
        format_ = values[f"{side}_format"]
        chosen = {k: v for k, v in self._side_options().items() if k.side in ("", side) and k.format == format_}
        ordered = {k.option.short: k for k in sorted(chosen, key=lambda known: known.side)}
        options = {short: chosen[known] for short, known in ordered.items()}
        if options.get("disable_quote_character") and "quote_character" in options:
            other = self.whats[ordered["disable_quote_character"].name]
            self._once(self.whats[ordered["quote_character"].name], f"can't be together with {other}; keep one of them")
        if "map_null_key_literal" in options and options.get("map_null_key_mode") != "LITERAL":
            what = self.whats[ordered["map_null_key_literal"].name]
            self._once(what, f"needs {table.underscored(format_)}_map_null_key_mode=LITERAL")
        return options

    def _side_options(self) -> dict[SideOption, Any]:
        return {known: value for known, value in self.taken.items() if isinstance(known, SideOption)}

    def _once(self, what: str, why: str) -> None:
        if f"{what}: {why}" not in self.problems:
            self._wrong(what, why)

    def _check_available(self, values: Mapping[str, Any]) -> None:
        names = dict.fromkeys(self.given)
        if "format" in self.given:
            names |= {"value_format": None, "key_format": None}
        for name in names:
            if name not in self.failed and table.is_later(name, values[name]):
                self._once(self.whats.get(name) or self.whats["format"], NOT_YET)


def _mean(near: str | None) -> str:
    return f"; did you mean {near}?" if near else ""
