"""A model's options: read in any dialect, checked all at once, typed.

`parse` promises that what it returns is consistent and that one error names every mistake, before anything is touched; it does
no I/O. `option_table` says what is allowed, `option_dialects` how it is spelled; `check_columns` waits for the SELECT's columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from dbt.adapters.upsert_kafka import kafka_properties, option_table
from dbt.adapters.upsert_kafka.errors import OptionsError
from dbt.adapters.upsert_kafka.option_dialects import ClientProperty, Collected, Setting, SideOption, collect, nearest, shown
from dbt.adapters.upsert_kafka.option_table import (
    CDC_FORMATS,
    EVERY_VALUE,
    KAFKA_SOURCE,
    OPTIONS,
    OWNED_UNDER_EXACTLY_ONCE,
    REFUSED_PROPERTIES,
    SINKS,
    UPSERT_KAFKA,
    Need,
    Option,
)
from dbt.adapters.upsert_kafka.option_types import Limit, plain


@dataclass(frozen=True)
class ModelOptions:
    """The options of one model; an option that its materialization does not take has no value (None, or empty)."""

    materialization: str
    topic: str | None = None
    topic_pattern: str | None = None
    bootstrap_servers: str | None = None
    properties: dict[str, str] = field(default_factory=dict, repr=False)
    unique_key: tuple[str, ...] = ()
    key_format: str = "json"
    value_format: str = "json"
    key_format_options: dict[str, Any] = field(default_factory=dict, repr=False)
    value_format_options: dict[str, Any] = field(default_factory=dict, repr=False)
    value_fields_include: str = "ALL"
    key_fields_prefix: str | None = None
    update_mode: str | None = None
    sink_ignore_retraction: bool = False
    sink_partitioner: str | None = None
    sink_partitioner_class: str | None = None
    sink_delivery_guarantee: str | None = None
    sink_transactional_id_prefix: str | None = None
    sink_parallelism: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    scan_startup_mode: str | None = None
    scan_startup_timestamp_millis: int | None = None
    scan_startup_specific_offsets: dict[int, int] = field(default_factory=dict)
    scan_bounded_mode: str | None = None
    scan_bounded_timestamp_millis: int | None = None
    scan_bounded_specific_offsets: dict[int, int] = field(default_factory=dict)
    ignore_parse_errors: bool = False
    delete_when: str | None = None
    missing_keys: str | None = None
    max_deletes: Limit | None = None
    allow_empty: bool = False
    on_duplicate_key: str | None = None
    sequence_by: tuple[str, ...] = ()
    on_null_key: str | None = None
    exclude_columns: tuple[str, ...] = ()
    partitions: int | None = None
    replication_factor: int | None = None
    topic_config: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that a source lists; empty with a pattern."""
        return tuple(self.topic.split(";")) if self.topic else ()


def parse(materialization: str, model_name: str, config: Mapping[str, Any]) -> ModelOptions:
    """Read the options of `model.config`; raise one OptionsError that lists every problem."""
    return _Check(materialization, collect(materialization, config)).result(model_name)


def check_columns(options: ModelOptions, model_name: str, columns: Sequence[str]) -> None:
    """Check what options say about columns against those that the SELECT has; raise one OptionsError that lists every problem."""
    known = {c.lower() for c in columns}
    problems = []
    for option in ("unique_key", "sequence_by", "exclude_columns"):
        for name in getattr(options, option):
            if name.lower() not in known:
                near = nearest(name.lower(), known, cutoff=0.5)
                hint = f"; did you mean {next(c for c in columns if c.lower() == near)}?" if near else ""
                hint = "; write several columns as a list" if "," in name else hint
                problems.append(f"{option}: the SELECT has no column {name}{hint} (it has {', '.join(columns)})")
    excluded = {c.lower() for c in options.exclude_columns}
    problems += [
        f"exclude_columns: {c} is part of unique_key and must be published" for c in options.unique_key if c.lower() in excluded
    ]
    if prefix := options.key_fields_prefix:
        problems += [
            f"key_fields_prefix={prefix!r}: the key column {c} does not start with it"
            for c in options.unique_key
            if not c.startswith(prefix)
        ]
        problems += [
            f"key_fields_prefix={prefix!r}: nothing is left of the key column {c}" for c in options.unique_key if c == prefix
        ]
    published = [c for c in columns if c.lower() not in excluded]
    keys = {c.lower() for c in options.unique_key}
    if not problems and options.value_fields_include == "EXCEPT_KEY" and all(c.lower() in keys for c in published):
        problems.append(
            "value_fields_include='EXCEPT_KEY': every published column is part of unique_key, so that no value is left"
        )
    _raise(model_name, problems)


def _raise(model_name: str, problems: Sequence[str]) -> None:
    if problems:
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        raise OptionsError(
            f"{model_name}: {count} with its options, nothing was touched\n" + "\n".join(f"  - {p}" for p in problems)
        )


class _Check:
    """One pass over the settings of one model: values first, then the rules between them."""

    def __init__(self, materialization: str, collected: Collected) -> None:
        self.materialization = materialization
        self.problems = collected.problems
        self.warnings = collected.warnings
        self.given: dict[str, Any] = {}
        self.places: dict[str, str] = {}
        self.properties: dict[str, str] = {}
        self.sides: dict[SideOption, Any] = {}
        for setting in collected.settings:
            self._take(setting)

    def result(self, model_name: str) -> ModelOptions:
        values = self._values()
        for name in self.given:
            self._check_rules(_BY_NAME[name], values)
        self._check_required(values)
        self._check_topics(values)
        key_options, value_options = (self._format_options(side, values) for side in ("key", "value"))
        self._check_properties(values)
        self._check_topic_config(values)
        self._check_available(values)
        _raise(model_name, self.problems)
        values["ignore_parse_errors"] = values.get("ignore_parse_errors") or value_options.get("ignore_parse_errors", False)
        known = {f.name for f in fields(ModelOptions)}
        return ModelOptions(
            materialization=self.materialization,
            properties=self.properties,
            key_format_options=key_options,
            value_format_options=value_options,
            warnings=tuple(self.warnings),
            **{name: value for name, value in values.items() if name in known and value is not None},
        )

    def _take(self, setting: Setting) -> None:
        """Read one value; two places may say the same thing, not two things."""
        known, place, raw = setting.known, setting.place, setting.raw
        option = known.option if isinstance(known, SideOption) else known
        secret = isinstance(option, ClientProperty) or option.secret
        try:
            value = plain(raw) if isinstance(option, ClientProperty) else option.type.parse(raw)
        except ValueError as e:
            self.problems.append(f"{place}={shown(known.name, raw, secret)}: {e}")
            return
        if known.name in self.places and self._taken(known) != value:
            before = f"{self.places[known.name]}={shown(known.name, self._taken(known), secret)}"
            self.problems.append(
                f"{place}={shown(known.name, value, secret)}: differs from {before}, which is the same option; keep one of them"
            )
            return
        self.places[known.name] = place
        match known:
            case Option():
                self.given[known.name] = value
            case SideOption():
                self.sides[known] = value
            case ClientProperty():
                self.properties[known.key] = value

    def _taken(self, known: Option | SideOption | ClientProperty) -> Any:
        match known:
            case Option():
                return self.given[known.name]
            case SideOption():
                return self.sides[known]
            case ClientProperty():
                return self.properties[known.key]

    def _values(self) -> dict[str, Any]:
        """What was given, with what follows from it and the defaults."""
        if "." in self.given.get("sink_partitioner", ""):
            self.given.setdefault("sink_partitioner_class", self.given["sink_partitioner"])
            self.places.setdefault("sink_partitioner_class", self.places["sink_partitioner"])
            self.given["sink_partitioner"] = "custom"
        values = {o.name: o.default_on.get(self.materialization, o.default) for o in OPTIONS if self.materialization in o.on}
        if format_ := self.given.get("format"):
            values["value_format"] = format_
            values["key_format"] = format_ if format_ not in CDC_FORMATS else values["key_format"]
        if self.materialization == KAFKA_SOURCE:
            values["scan_startup_mode"] = "group-offsets" if "group.id" in self.properties else "earliest-offset"
        if "group.id" in self.properties:
            values["properties group.id"] = self.properties["group.id"]
        return values | self.given

    def _shown(self, name: str) -> str:
        return f"{self.places[name]}={shown(name, self.given[name], _BY_NAME[name].secret)}"

    def _check_rules(self, option: Option, values: Mapping[str, Any]) -> None:
        if self.materialization not in option.on:
            self.problems.append(
                f"{self._shown(option.name)}: is an option of {', '.join(option.on)}; {self.materialization} does not take it"
            )
            return
        allowed = option.values_on.get(self.materialization)
        if allowed and values[option.name] not in allowed:
            self.problems.append(
                f"{self._shown(option.name)}: must be one of {', '.join(allowed)} with materialized='{self.materialization}'"
            )
            return
        for need in option.needs:
            if self.materialization in need.on and not need.met(values):
                self.problems.append(f"{self._shown(option.name)}: needs {need}{self._instead(need, values)}")
        for need in option.value_needs.get(_hashable(values[option.name]), ()):
            if self.materialization in need.on and not need.met(values):
                self.problems.append(f"{self._shown(option.name)}: needs {need}{self._instead(need, values)}")
        for other in option.excludes:
            if self.materialization in other.on and other.met(values):
                self.problems.append(f"{self._shown(option.name)}: can't be together with {other}; keep one of them")
        if option.no_effect:
            self.warnings.append(f"{self.places[option.name]} has no effect: {option.no_effect}")

    def _instead(self, need: Need, values: Mapping[str, Any]) -> str:
        value = values.get(need.option)
        return f" (it is {value})" if need.values and value is not None else ""

    def _check_required(self, values: Mapping[str, Any]) -> None:
        for option in OPTIONS:
            if self.materialization in option.required_on and option.name not in self.places and not values.get(option.name):
                self.problems.append(f"{option.name}: is required by {self.materialization}. {option.meaning}")

    def _check_topics(self, values: Mapping[str, Any]) -> None:
        topics = (values.get("topic") or "").split(";")
        if self.materialization in SINKS and len(topics) > 1:
            self.problems.append(f"{self._shown('topic')}: a sink writes one topic; several topics are for kafka_source")
        if (
            self.materialization == KAFKA_SOURCE
            and not {"topic", "topic_pattern"} & self.places.keys()
            and not self._failed("topic")
        ):
            self.problems.append("topic: kafka_source needs topic or topic_pattern")
        for name in ("scan_startup_specific_offsets", "scan_bounded_specific_offsets"):
            if values.get(name) and (len(topics) > 1 or values.get("topic_pattern")):
                self.problems.append(f"{self._shown(name)}: offsets of partitions need a single topic")

    def _failed(self, name: str) -> bool:
        """Whether the option was given with a value that is already a problem."""
        return any(
            p.startswith((f"{name}=", f"with_options '{name}'", f"with_options 'connector.{name}'")) for p in self.problems
        )

    def _format_options(self, side: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """The options of one side's format by their short names; those for one side win over those for both."""
        chosen = values[f"{side}_format"]
        result = {}
        for known, value in sorted(self.sides.items(), key=lambda item: item[0].side != ""):
            place, option = self.places[known.name], known.option
            what = f"{place}={shown(known.name, value, option.secret)}"
            if known.side in ("", side) and known.format == chosen:
                result[option.short] = value
            elif known.side == side:
                self.problems.append(f"{what}: needs {side}_format={known.format} (it is {chosen})")
            elif known.side == "" and side == "key" and known.format not in (chosen, values["value_format"]):
                formats = f"key_format is {chosen}, value_format is {values['value_format']}"
                self.problems.append(f"{what}: needs format={known.format} ({formats})")
            if side == "value" and self.materialization not in option.on:
                self.problems.append(f"{what}: is an option of {', '.join(option.on)}; {self.materialization} does not take it")
            if (
                side == "value"
                and known.side == ""
                and option.per_side
                and values["key_format"] == chosen == known.format
                and values["unique_key"]
            ):
                self.problems.append(f"{what}: key and value can't share it; set key_{known.name} and value_{known.name}")
            if known.side == "key" == side and not values["unique_key"] and UPSERT_KAFKA != self.materialization:
                self.problems.append(f"{what}: needs unique_key")
        if result.get("disable_quote_character") and "quote_character" in result:
            self.problems.append(
                f"{side}_csv_quote_character={result['quote_character']!r}: can't be together with disable_quote_character=true"
            )
        if "map_null_key_literal" in result and result.get("map_null_key_mode") != "LITERAL":
            name = f"{side}_{option_table.underscored(chosen)}_map_null_key_literal"
            self.problems.append(f"{name}={result['map_null_key_literal']!r}: needs map_null_key_mode=LITERAL")
        return result

    def _check_properties(self, values: Mapping[str, Any]) -> None:
        exactly_once = values.get("sink_delivery_guarantee") == "exactly-once"
        for name, value in self.properties.items():
            what = f"{self.places[f'properties {name}']}={shown(name, value)}"
            if reason := REFUSED_PROPERTIES.get(name) or (OWNED_UNDER_EXACTLY_ONCE.get(name) if exactly_once else None):
                self.problems.append(f"{what}: can't be set: {reason}")
            elif wrong := kafka_properties.problem(name, value):
                self.problems.append(f"{what}: {wrong}")
            elif not kafka_properties.is_known(name):
                near = kafka_properties.nearest(name)
                self.warnings.append(
                    f"{self.places[f'properties {name}']}: no Kafka client knows this property"
                    + (f"; did you mean {near}?" if near else "")
                )
        if self.materialization in SINKS and self.properties.get("isolation.level") == "read_uncommitted":
            self.problems.append(
                "properties isolation.level='read_uncommitted': the topic is compared as committed readers see it"
            )
        if "partitioner.class" in self.properties and values.get("sink_partitioner") not in (None, "default"):
            self.problems.append(
                f"{self._shown('sink_partitioner')}: can't be together with properties partitioner.class; keep one of them"
            )

    def _check_topic_config(self, values: Mapping[str, Any]) -> None:
        config = values.get("topic_config") or {}
        for name in config:
            if name not in kafka_properties.TOPIC_CONFIGS:
                near = nearest(name, kafka_properties.TOPIC_CONFIGS)
                self.warnings.append(
                    f"topic_config {name}: Kafka knows no such topic setting" + (f"; did you mean {near}?" if near else "")
                )
        policy = config.get("cleanup.policy", "compact")
        if self.materialization == UPSERT_KAFKA and "compact" not in policy:
            self.warnings.append(
                f"topic_config cleanup.policy={policy!r}: without compact the topic loses rows that did not change for long"
            )

    def _check_available(self, values: Mapping[str, Any]) -> None:
        for name in sorted(self.given.keys() | ({"key_format", "value_format"} if "format" in self.given else set())):
            later = option_table.NOT_AVAILABLE_YET.get(name, ())
            if later == EVERY_VALUE or values[name] in later:
                place = self.places.get(name) or self.places["format"]
                self.problems.append(
                    f"{place}={shown(name, values[name], name in _BY_NAME and _BY_NAME[name].secret)}: is not available yet"
                )


def _hashable(value: Any) -> Any:
    return value if isinstance(value, str | int | bool | None) else None


_BY_NAME = {o.name: o for o in OPTIONS}
