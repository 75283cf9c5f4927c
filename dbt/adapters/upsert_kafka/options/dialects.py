"""Reads the settings of a model in every spelling: `config()`, YAML, WITH clauses of Flink, Alibaba Cloud and Huawei DLI.

Finds the row of the option table for each setting and remembers where it was set. Leaves the check of values to `check`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from dbt.adapters.upsert_kafka import kafka_properties
from dbt.adapters.upsert_kafka.options.format_table import FORMAT_OPTIONS, FormatOption
from dbt.adapters.upsert_kafka.options.table import KAFKA, KAFKA_SOURCE, OPTIONS, UPSERT_KAFKA, Option, underscored
from dbt.adapters.upsert_kafka.options.values import ValueType

CONNECTORS = {"upsert-kafka": (UPSERT_KAFKA, KAFKA_SOURCE), "kafka": (KAFKA, KAFKA_SOURCE)}
CONNECTOR_VERSIONS = ("0.10", "0.11")

# Keys of model.config that belong to dbt or dbt-spark. They are ignored.
_DBT_CONFIGS = """
access alias auto_liquid_cluster backup batch_size begin buckets catalog_name cluster_by clustered_by column_types
concurrent_batches contract database docs enabled event_time fail_calc file_format freshness full_refresh grants
group incremental_predicates incremental_strategy indexes location location_root lookback materialized
merge_exclude_columns merge_update_columns meta on_configuration_change on_schema_change options packages
partition_by persist_docs post_hook pre_hook predicates quote_columns quoting resource_tags schema
snapshot_meta_column_names sql_header static_analysis store_failures store_failures_as tags target_database
target_schema tblproperties transient unlogged version with_options
"""
DBT_CONFIGS = frozenset(_DBT_CONFIGS.split())

# A credential inside a longer text, such as a JAAS config.
_SECRET_TEXT = re.compile(r"(password|secret|token)\S*\s*[=:]", re.IGNORECASE)


@dataclass(frozen=True)
class SideOption:
    """A format option of the key, of the value, or (side '') of both."""

    side: str
    format: str
    option: FormatOption

    @property
    def name(self) -> str:
        return underscored(".".join(filter(None, (self.side, self.format, self.option.name))))

    @property
    def type(self) -> ValueType:
        return self.option.type

    @property
    def secret(self) -> bool:
        return self.option.secret


@dataclass(frozen=True)
class ClientProperty:
    """One Kafka client property."""

    key: str

    @property
    def name(self) -> str:
        return f"properties {self.key}"

    @property
    def secret(self) -> bool:
        return kafka_properties.is_secret(self.key)


Known = Option | SideOption | ClientProperty


@dataclass(frozen=True)
class Setting:
    """One value as the user wrote it, and the place where it is set."""

    known: Known
    place: str
    raw: Any


@dataclass
class Collected:
    """All settings of a model, and the problems with their names."""

    settings: list[Setting] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def _side_options() -> Iterable[tuple[str, SideOption]]:
    for option in FORMAT_OPTIONS:
        for format_ in option.formats:
            for side in ("", "key", "value"):
                for name in (option.name, *option.aliases):
                    yield ".".join(filter(None, (side, format_, name))), SideOption(side, format_, option)


FLINK: Mapping[str, Known] = {name: o for o in OPTIONS for name in o.flink if not name.endswith("*")} | dict(_side_options())
HUAWEI: Mapping[str, Known] = {name: o for o in OPTIONS for name in o.huawei if not name.endswith("*")} | {
    f"format.{o.name}": SideOption("", "csv", o) for o in FORMAT_OPTIONS if "csv" in o.formats
}
CONFIG: Mapping[str, Known] = {underscored(name): known for name, known in FLINK.items()} | {o.name: o for o in OPTIONS}

# dbt's own configs that decide what is published, or who may read it.
_DBT_GUARDS = ("contract", "full_refresh", "grants", "on_schema_change")
_NAMES = (*CONFIG, *_DBT_GUARDS)

NEAR_MISS = 0.8
"""How similar a name must be to an option's to be refused as a misspelling. Users' own keys are less similar."""

_FAMILIES = {"Flink's": (FLINK, "connector", "properties."), "Huawei DLI's": (HUAWEI, "connector.type", "connector.properties.")}


def collect(materialization: str, config: Mapping[str, Any]) -> Collected:
    """Find the options that `config` and its `with_options` set."""
    found = Collected()
    for key, raw in config.items():
        if raw is not None and underscored(key) not in DBT_CONFIGS:
            _config_key(materialization, key, raw, found)
    clause = config.get("with_options")
    if clause is not None:
        _with_clause(materialization, clause, found)
    return found


def shown(value: Any, secret: bool) -> str:
    """The value as messages show it: shortened, and `***` if it may be a secret."""
    text = repr(value)
    if secret or _SECRET_TEXT.search(text):
        return "***"
    if isinstance(value, bool):
        return str(value).lower()
    text = re.sub(r"(://|')\S*@", r"\1***@", text)
    return text if len(text) <= 80 else text[:77] + "…" + text[-1]


def nearest(name: str, names: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The most similar name, or None if none is similar enough."""
    return next(iter(get_close_matches(name, list(names), n=1, cutoff=cutoff)), None)


def _config_key(materialization: str, key: str, raw: Any, found: Collected) -> None:
    name = underscored(key)
    if name == "properties":
        _property_map(key, raw, found)
    elif known := CONFIG.get(name):
        found.settings.append(Setting(known, key, _key_fields(materialization, key, key, raw, found)))
    elif key.startswith("properties."):
        found.settings.append(_property(key.removeprefix("properties."), key, raw))
    elif name.startswith("properties_"):
        found.settings.append(_property(kafka_properties.from_underscores(name.removeprefix("properties_")), key, raw))
    elif key in HUAWEI or key.startswith(("connector.", "connector_")) or key == "connector":
        found.warnings.append(f"{key} has no effect in config(); set it in with_options")
    elif near := _near_miss(name):
        found.problems.append(f"{key}: is not an option; did you mean {near}? A key of your own belongs under meta")


def _near_miss(name: str) -> str | None:
    """The option that `name` is probably meant to be. A misspelt guard such as `max_delete` would protect nothing."""
    if name == "primary_key":
        return "unique_key"
    endings = [known for known in CONFIG if len(name) >= 8 and known.endswith("_" + name)]
    return nearest(name.lower(), _NAMES, NEAR_MISS) or (endings[0] if len(endings) == 1 else None)


def _property(name: str, place: str, raw: Any) -> Setting:
    return Setting(FLINK["properties.bootstrap.servers"] if name == "bootstrap.servers" else ClientProperty(name), place, raw)


def _property_map(place: str, raw: Any, found: Collected) -> None:
    if not isinstance(raw, Mapping) or not all(isinstance(name, str) for name in raw):
        found.problems.append(f"{place}: must be a map of Kafka property names to values, not a {type(raw).__name__}")
        return
    found.settings.extend(_property(name, f"{place} {name}", value) for name, value in raw.items() if value is not None)


def _key_fields(materialization: str, name: str, place: str, raw: Any, found: Collected) -> Any:
    """Split Flink's `key.fields` into columns. It is refused for a source, where unique_key means something else."""
    if underscored(name) != "key_fields":
        return raw
    if materialization == KAFKA_SOURCE:
        found.problems.append(
            f"{place}={shown(raw, False)}: can't be set on kafka_source; set unique_key to read the last value of each key"
        )
    return [part.strip() for part in raw.split(";")] if isinstance(raw, str) else raw


def _with_clause(materialization: str, clause: Any, found: Collected) -> None:
    pairs = _clause_text(clause) if isinstance(clause, str) else list(clause.items()) if isinstance(clause, Mapping) else None
    if pairs is None or not all(isinstance(name, str) for name, _ in pairs):
        found.problems.append(
            "with_options: must be a map such as {'connector': 'upsert-kafka', 'topic': 'users'}, or the text of a WITH clause"
        )
        return
    options = dict(pairs)
    twice = sorted({name for name, _ in pairs if [n for n, _ in pairs].count(name) > 1})
    found.problems += [f"with_options '{name}': is set twice; remove one of them" for name in twice]
    families = {name: _family(name) for name in options}
    examples = {family: name for name, family in reversed(families.items()) if family}
    if len(examples) > 1:
        mixed = " and ".join(f"{family} spelling ('{examples[family]}')" for family in _FAMILIES)
        found.problems.append(f"with_options: mixes {mixed}; use one of them")
    default = next(iter(examples), "Flink's")
    for name, raw in options.items():
        if raw is not None:
            _with_option(materialization, families[name] or default, name, raw, found)


def _family(name: str) -> str | None:
    for family, (names, connector, prefix) in _FAMILIES.items():
        if name in names or name == connector or name.startswith(prefix):
            return family
    return "Huawei DLI's" if name.startswith(("connector.", "format.")) else None


def _with_option(materialization: str, family: str, name: str, raw: Any, found: Collected) -> None:
    names, connector, prefix = _FAMILIES[family]
    place = f"with_options '{name}'"
    if name == connector:
        _connector(materialization, place, raw, found)
    elif name == "connector.version":
        if raw not in CONNECTOR_VERSIONS:
            found.problems.append(f"{place}={shown(raw, False)}: must be one of {', '.join(map(repr, CONNECTOR_VERSIONS))}")
    elif known := names.get(name):
        found.settings.append(Setting(known, place, _key_fields(materialization, name, place, raw, found)))
    elif name.startswith(prefix):
        found.settings.append(_property(name.removeprefix(prefix), place, raw))
    elif underscored(name) in CONFIG:
        written = [n for n, known in names.items() if known == CONFIG[underscored(name)]]
        instead = f"use '{written[0]}'" if written else f"set {underscored(name)} in config()"
        value = shown(raw, kafka_properties.is_secret(name))
        found.problems.append(f"{place}={value}: is not an option of WITH clauses; {instead}")
    else:
        near = nearest(name, [*names, connector, *([] if family == "Flink's" else ["connector.version"])])
        hint = f"; did you mean '{near}'?" if near else ""
        found.problems.append(
            f"{place}={shown(raw, kafka_properties.is_secret(name))}: is not an option in {family} spelling{hint}"
        )


def _connector(materialization: str, place: str, raw: Any, found: Collected) -> None:
    if not isinstance(raw, str) or raw not in CONNECTORS:
        found.problems.append(f"{place}={shown(raw, False)}: must be one of {', '.join(CONNECTORS)}")
    elif materialization not in CONNECTORS[raw]:
        wanted = " or ".join(f"materialized='{m}'" for m in CONNECTORS[raw])
        found.problems.append(f"{place}={shown(raw, False)}: needs {wanted}, but the model has materialized='{materialization}'")


def _clause_text(text: str) -> list[tuple[str, str]] | None:
    """The options of a WITH clause in text form, `'topic' = 'users', …`. None if the text can't be parsed."""
    text = re.sub(r"^\s*--.*$", "", text, flags=re.MULTILINE).strip().rstrip(";").strip()
    if wrapped := re.fullmatch(r"(?:WITH\s*)?\((.*)\)", text, flags=re.IGNORECASE | re.DOTALL):
        text = wrapped[1].strip()
    pair = r"'((?:[^']|'')*)'\s*=\s*'((?:[^']|'')*)'"
    if not re.fullmatch(rf"{pair}(?:\s*,\s*{pair})*\s*,?", text):
        return None
    return [(name.replace("''", "'"), value.replace("''", "'")) for name, value in re.findall(pair, text)]
