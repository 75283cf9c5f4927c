"""A model's options: read in any dialect, checked all at once, typed.

`parse` promises that what it returns is consistent and that one error names every mistake, before anything is touched; it does
no I/O. `table` says what is allowed, `dialects` how it is spelled, `check` what goes together; `check_columns` waits for the
SELECT's columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from dbt.adapters.upsert_kafka.errors import OptionsError
from dbt.adapters.upsert_kafka.options import dialects
from dbt.adapters.upsert_kafka.options.check import check
from dbt.adapters.upsert_kafka.options.table import KAFKA
from dbt.adapters.upsert_kafka.options.values import Limit

__all__ = ["Limit", "ModelOptions", "check_columns", "parse"]


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
    """By short names (`null_literal`), only what was set: a format knows its own defaults."""
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
    record_timestamp: str | None = None
    scan_startup_mode: str | None = None
    scan_startup_timestamp_millis: int | None = None
    scan_startup_specific_offsets: dict[int, int] = field(default_factory=dict)
    scan_bounded_mode: str | None = None
    scan_bounded_timestamp_millis: int | None = None
    scan_bounded_specific_offsets: dict[int, int] = field(default_factory=dict)
    on_offset_out_of_range: str | None = None
    ignore_parse_errors: bool = False
    delete_when: str | None = None
    missing_keys: str | None = None
    max_deletes: Limit | None = None
    allow_empty: bool = False
    on_duplicate_key: str | None = None
    sequence_by: tuple[str, ...] = ()
    on_null_key: str | None = None
    foreign_keys: str | None = None
    exclude_columns: tuple[str, ...] = ()
    partitions: int | None = None
    replication_factor: int | None = None
    topic_config: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that a source lists; empty with a pattern."""
        return tuple(self.topic.split(";")) if self.topic else ()

    @property
    def appends(self) -> bool:
        """Whether rows are events, added each run without a look at the topic."""
        return self.materialization == KAFKA and self.update_mode == "append"


def parse(materialization: str, model_name: str, config: Mapping[str, Any]) -> ModelOptions:
    """Read the options in dbt's `model.config`.

    Raises:
        OptionsError: one that lists every problem, a line each.
    """
    checked = check(materialization, dialects.collect(materialization, config))
    _raise(model_name, checked.problems)
    known = {f.name for f in fields(ModelOptions)}
    values = {name: value for name, value in checked.values.items() if name in known and value is not None}
    warnings = tuple(f"{model_name}: {warning}" for warning in checked.warnings)
    return ModelOptions(materialization=materialization, warnings=warnings, **values)


def check_columns(options: ModelOptions, model_name: str, columns: Sequence[str]) -> None:
    """Check what options say about columns against those that the SELECT has, as Spark does: without regard to case.

    Raises:
        OptionsError: one that lists every problem, a line each.
    """
    known = {c.lower(): c for c in columns}
    key = {c.lower() for c in options.unique_key}
    excluded = {c.lower() for c in options.exclude_columns}
    problems = [
        f"{option}: the SELECT has no column {name}{_nearest_column(name, known)} (it has {', '.join(columns)})"
        for option in ("unique_key", "sequence_by", "exclude_columns")
        for name in getattr(options, option)
        if name.lower() not in known
    ]
    problems += [
        f"exclude_columns: {known[c]} is part of unique_key and is published" for c in sorted(key & excluded & known.keys())
    ]
    if prefix := options.key_fields_prefix:
        what = f"key_fields_prefix={prefix!r}"
        for c in options.unique_key:
            if not c.lower().startswith(prefix.lower()):
                problems.append(f"{what}: the key column {c} does not start with it")
            elif len(c) == len(prefix):
                problems.append(f"{what}: nothing is left of the key column {c}")
    if not problems and options.value_fields_include == "EXCEPT_KEY" and not known.keys() - key - excluded:
        problems.append(
            "value_fields_include='EXCEPT_KEY': every column is part of unique_key, so that no value is left; use ALL"
        )
    _raise(model_name, problems)


def _nearest_column(name: str, known: Mapping[str, str]) -> str:
    if any(sign in name for sign in ",;"):
        return "; write several columns as a list"
    near = dialects.nearest(name.lower(), known, cutoff=0.5)
    return f"; did you mean {known[near]}?" if near else ""


def _raise(model_name: str, problems: Sequence[str]) -> None:
    if problems:
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        lines = "\n".join(f"  - {problem}" for problem in problems)
        raise OptionsError(f"{model_name}: {count} with its options, nothing was touched\n{lines}")
