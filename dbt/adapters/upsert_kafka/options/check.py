"""Checks the settings of one model: the value of each option, then which options need or exclude each other.

Collects every problem instead of stopping at the first one. A problem that only follows from another problem is left out.
Leaves the spelling of names to `dialects` and the columns of the SELECT to `check_columns`.
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
from dbt.adapters.upsert_kafka.options.values import ValueType, choice, plain, unknown_avro_type

GROUP_ID = "properties group.id"
_BY_NAME = {o.name: o for o in OPTIONS}


@dataclass
class Checked:
    """The parsed values by the names of ModelOptions, and the problems and warnings."""

    values: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def check(materialization: str, collected: Collected) -> Checked:
    """Check all settings. A problem is one line: `topic='a b': must be …`."""
    return _Check(materialization, collected).run()


class _Check:
    """The state of one check. Options are identified by their names in `config()`."""

    def __init__(self, materialization: str, collected: Collected) -> None:
        self.materialization = materialization
        self.problems = list(collected.problems)
        self.warnings = list(collected.warnings)
        self.settings = collected.settings
        self.parsed: dict[Known, Any] = {}
        self.places: dict[str, str] = {}
        """Where each option is set: `topic`, `with_options 'topic'`."""
        self.assignments: dict[str, str] = {}
        """Place and value of each option as messages show them: `topic='users'`."""
        self.failed: set[str] = set()
        """Options that have a problem. Rules of other options that depend on them are not checked."""

    def run(self) -> Checked:
        for setting in self.settings:
            self._parse(setting)
        self._split_partitioner()
        self.given = {known.name: value for known, value in self.parsed.items() if isinstance(known, Option)}
        self.properties = {known.key: value for known, value in self.parsed.items() if isinstance(known, ClientProperty)}
        values = self._with_defaults()
        for name in self.given:
            self._check_rules(_BY_NAME[name], values)
        self._check_stream(values)
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
        return Checked(values, self.problems, self.warnings)

    def _add_problem(self, assignment: str, problem: str) -> None:
        line = f"{assignment}: {problem}"
        if line not in self.problems:
            self.problems.append(line)

    def _parse(self, setting: Setting) -> None:
        """Parse one value. The same option may be set in two places, but not to different values."""
        known, assignment = setting.known, f"{setting.place}={shown(setting.raw, setting.known.secret)}"
        try:
            value = plain(setting.raw) if isinstance(known, ClientProperty) else self._type(known).parse(setting.raw)
        except ValueError as e:
            self._add_problem(assignment, str(e))
            self.failed.add(known.name)
            return
        if known in self.parsed and self.parsed[known] != value:
            other = self.assignments[known.name]
            self._add_problem(assignment, f"differs from {other}, which is the same option; remove one of them")
            self.failed.add(known.name)
            return
        self.places.setdefault(known.name, setting.place)
        self.assignments.setdefault(known.name, assignment)
        self.parsed[known] = value

    def _type(self, known: Option | SideOption) -> ValueType:
        """The type of an option, with those of its values that this materialization takes."""
        allowed = known.values_on.get(self.materialization) if isinstance(known, Option) else None
        return choice(*allowed, because=f" with materialized='{self.materialization}'") if allowed else known.type

    def _split_partitioner(self) -> None:
        """Read a class name in `sink_partitioner` (Flink) as `custom` and `sink_partitioner_class` (Huawei DLI)."""
        partitioner, class_ = _BY_NAME["sink_partitioner"], _BY_NAME["sink_partitioner_class"]
        if "." in self.parsed.get(partitioner, ""):
            self._parse(Setting(class_, self.places[partitioner.name], self.parsed[partitioner]))
            self.parsed[partitioner] = "custom"

    def _with_defaults(self) -> dict[str, Any]:
        values = {o.name: o.default_on.get(self.materialization, o.default) for o in OPTIONS if self.materialization in o.on}
        if format_ := self.given.get("format"):
            values["value_format"] = format_
            values["key_format"] = format_ if format_ not in CDC_FORMATS else values["key_format"]
        if self.materialization == KAFKA and self.given.get("value_format", values["value_format"]) in CDC_FORMATS:
            values["update_mode"] = "upsert"
        if self.materialization == KAFKA_SOURCE:
            values["scan_startup_mode"] = "group-offsets" if "group.id" in self.properties else "earliest-offset"
        return values | {GROUP_ID: self.properties.get("group.id")} | self.given

    def _check_rules(self, option: Option, values: Mapping[str, Any]) -> None:
        """Check the rules of one option that is set: materialization, allowed values, needed and excluded options."""
        assignment, value = self.assignments[option.name], values[option.name]
        if self.materialization not in option.on:
            self._add_problem(assignment, self._wrong_materialization(option.on))
            self.failed.add(option.name)
            return
        allowed = option.values_on.get(self.materialization)
        if allowed and value not in allowed:
            self._add_problem(assignment, f"must be one of {', '.join(allowed)} with materialized='{self.materialization}'")
            self.failed.add(option.name)
            return
        by_value = option.value_needs.get(value, ()) if isinstance(value, str) else ()
        for need in (*option.needs, *by_value):
            if self._is_unmet(need, values):
                now = values.get(need.option)
                current = f", but {need.option} is {plain(now)}" if need.values and now is not None else ""
                self._add_problem(assignment, f"needs {need}{current}")
        for other in option.excludes:
            if self.materialization in other.on and other.met(values):
                self._add_problem(assignment, f"can't be combined with {other}; remove one of them")
        if option.no_effect:
            self.warnings.append(f"{self.places[option.name]} has no effect: {option.no_effect}")

    def _check_stream(self, values: Mapping[str, Any]) -> None:
        if values.get("trigger") not in table.STREAMS or self.materialization != UPSERT_KAFKA:
            return
        for name, reason in table.NOT_IN_STREAMS.items():
            if name in self.given and (name, values[name]) != ("sink_partitioner", "default"):
                self._add_problem(self.assignments[name], f"can't be set with trigger={values['trigger']}: {reason}")

    def _is_unmet(self, need: Need, values: Mapping[str, Any]) -> bool:
        return self.materialization in need.on and need.option not in self.failed and not need.met(values)

    def _wrong_materialization(self, on: tuple[str, ...]) -> str:
        return f"is an option of {' and '.join(on)}, not of {self.materialization}; remove it"

    def _check_required(self, values: Mapping[str, Any]) -> None:
        for option in OPTIONS:
            if self.materialization in option.required_on and option.name not in self.failed and not values[option.name]:
                self._add_problem(option.name, f"is required by {self.materialization}. {option.meaning}")
        if self.materialization == KAFKA_SOURCE and not {"topic", "topic_pattern"} & (self.given.keys() | self.failed):
            self._add_problem("topic", "kafka_source needs topic or topic_pattern")

    def _check_topics(self, values: Mapping[str, Any]) -> None:
        several = ";" in (values["topic"] or "")
        if self.materialization in SINKS and several:
            self._add_problem(self.assignments["topic"], "must be a single topic; only kafka_source takes several topics")
        for name in ("scan_startup_specific_offsets", "scan_bounded_specific_offsets"):
            if values.get(name) and (several or values.get("topic_pattern")):
                self._add_problem(self.assignments[name], "needs a single topic")

    def _check_properties(self, values: Mapping[str, Any]) -> None:
        owned = kafka_properties.OWNED_UNDER_EXACTLY_ONCE if values.get("sink_delivery_guarantee") == "exactly-once" else {}
        for name, value in self.properties.items():
            place, assignment = self.places[ClientProperty(name).name], self.assignments[ClientProperty(name).name]
            if reason := kafka_properties.REFUSED.get(name) or owned.get(name):
                self._add_problem(assignment, f"can't be set: {reason}")
            elif kafka_properties.holds_secret(name) and "${" not in value:
                self._add_problem(assignment, f"{table.NO_SECRET} `kafka` of the profile, or use a Kafka config provider")
            elif wrong := kafka_properties.newer_than_client(name) or kafka_properties.problem(name, value):
                self._add_problem(assignment, wrong)
            elif not kafka_properties.is_known(name):
                near = kafka_properties.nearest(name)
                self.warnings.append(f"{place}: no Kafka client has this property{_did_you_mean(near)}")
            elif name == "auto.offset.reset":
                self._check_reset(assignment, value, values)
            elif name == "isolation.level" and value.lower() == "read_uncommitted" and self.materialization in SINKS:
                self._add_problem(assignment, "can't be set: sinks compare rows with committed records")
            elif name == "partitioner.class" and values.get("sink_partitioner") not in (None, "default"):
                partitioner = self.assignments["sink_partitioner"]
                self._add_problem(partitioner, f"can't be combined with {place}; remove one of them")

    def _check_reset(self, assignment: str, value: str, values: Mapping[str, Any]) -> None:
        if values.get("scan_startup_mode") != "group-offsets":
            self._add_problem(assignment, "can't be set: needs scan_startup_mode=group-offsets; use scan_startup_mode instead")
        elif value not in ("earliest", "latest", "none"):
            self._add_problem(assignment, "must be one of earliest, latest, none")

    def _check_topic_config(self, values: Mapping[str, Any]) -> None:
        config = values.get("topic_config") or {}
        for name in config:
            if name not in kafka_properties.TOPIC_CONFIGS:
                near = nearest(name, sorted(kafka_properties.TOPIC_CONFIGS))
                self.warnings.append(f"topic_config {name}: Kafka has no such topic config{_did_you_mean(near)}")
        policy = config.get("cleanup.policy", "compact")
        if self.materialization == UPSERT_KAFKA and "compact" not in policy:
            self.warnings.append(
                f"topic_config cleanup.policy={policy!r}: without compact, Kafka deletes rows that are older than the retention"
            )

    def _check_format_options(self, values: Mapping[str, Any]) -> None:
        formats = {side: values[f"{side}_format"] for side in ("key", "value")}
        failed_sides = {side for side in formats if {"format", f"{side}_format"} & self.failed}
        for known in self._side_options():
            assignment = self.assignments[known.name]
            sides = {known.side} if known.side else {"key", "value"}
            if self.materialization not in known.option.on:
                self._add_problem(assignment, self._wrong_materialization(known.option.on))
            elif not failed_sides & sides and known.format not in {formats[side] for side in sides}:
                needed = f"{known.side}_format" if known.side else "format"
                now = " and ".join(f"{side}_format is {formats[side]}" for side in sorted(sides))
                self._add_problem(assignment, f"needs {needed}={known.format}, but {now}")
            elif known.side == "key" and not values["unique_key"] and "unique_key" not in self.failed:
                self._add_problem(assignment, "needs unique_key")
            elif known.option.per_side and not known.side and values["unique_key"] and set(formats.values()) == {known.format}:
                self._add_problem(assignment, f"must differ for key and value; set key_{known.name} and value_{known.name}")
            elif known.option.no_effect:
                self.warnings.append(f"{self.places[known.name]} has no effect: {known.option.no_effect}")

    def _format_options(self, side: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """The options of one side's format by their short names. An option for one side wins over one for both."""
        format_ = values[f"{side}_format"]
        chosen = {k: v for k, v in self._side_options().items() if k.side in ("", side) and k.format == format_}
        ordered = {k.option.short: k for k in sorted(chosen, key=lambda known: known.side)}
        options = {short: chosen[known] for short, known in ordered.items()}
        if options.get("disable_quote_character") and "quote_character" in options:
            other = self.assignments[ordered["disable_quote_character"].name]
            quote = self.assignments[ordered["quote_character"].name]
            self._add_problem(quote, f"can't be combined with {other}; remove one of them")
        if "map_null_key_literal" in options and options.get("map_null_key_mode") != "LITERAL":
            literal = self.assignments[ordered["map_null_key_literal"].name]
            self._add_problem(literal, f"needs {table.underscored(format_)}_map_null_key_mode=LITERAL")
        if "schema_references" in options and "schema" not in options:
            references = self.assignments[ordered["schema_references"].name]
            self._add_problem(references, f"needs {side}_{table.underscored(format_)}_schema, which refers to them")
        alone = options.get("schema") if format_ == "avro-confluent" and "schema_references" not in options else None
        if alone and (unknown := unknown_avro_type(alone)):
            problem = f"must be an Avro schema: type {unknown} is unknown. If another subject has it, name it in {side}_"
            self._add_problem(self.assignments[ordered["schema"].name], f"{problem}avro_confluent_schema_references")
        return options

    def _side_options(self) -> dict[SideOption, Any]:
        return {known: value for known, value in self.parsed.items() if isinstance(known, SideOption)}


def _did_you_mean(near: str | None) -> str:
    return f"; did you mean {near}?" if near else ""
