"""The options of a model: read in any spelling, checked together, typed.

`parse` returns consistent options or raises one error that lists every problem. It does no I/O. `check_columns` checks the
options that name columns, once the columns of the SELECT are known. `table` and `format_table` define the options, `dialects`
their spellings, `values` their types and `check` the rules between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Any

from dbt.adapters.upsert_kafka.errors import OptionsError
from dbt.adapters.upsert_kafka.options import dialects
from dbt.adapters.upsert_kafka.options.check import check
from dbt.adapters.upsert_kafka.options.table import KAFKA, STREAMS
from dbt.adapters.upsert_kafka.options.values import Limit

__all__ = ["Limit", "ModelOptions", "check_columns", "parse"]


@dataclass(frozen=True)
class ModelOptions:
    """The options of one model. An option that the materialization does not have is None or empty."""

    materialization: str
    topic: str | None = None
    topic_pattern: str | None = None
    bootstrap_servers: str | None = None
    properties: dict[str, str] = field(default_factory=dict, repr=False)
    unique_key: tuple[str, ...] = ()
    key_format: str = "json"
    value_format: str = "json"
    key_format_options: dict[str, Any] = field(default_factory=dict, repr=False)
    """By short names (`null_literal`). Contains only options that are set; formats define their own defaults."""
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
    commit_without: tuple[str, ...] = ()
    ignore_parse_errors: bool = False
    delete_when: str | None = None
    missing_keys: str | None = None
    max_deletes: Limit | None = None
    allow_empty: bool = False
    on_duplicate_key: str | None = None
    sequence_by: tuple[str, ...] = ()
    on_null_key: str | None = None
    foreign_keys: str | None = None
    trigger: str | None = None
    trigger_interval: timedelta | None = None
    checkpoint_location: str | None = None
    watermark: dict[str, timedelta] = field(default_factory=dict)
    exclude_columns: tuple[str, ...] = ()
    plan_mask: tuple[str, ...] = ()
    partitions: int | None = None
    replication_factor: int | None = None
    topic_config: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics of a source. Empty if it has a topic_pattern."""
        return tuple(self.topic.split(";")) if self.topic else ()

    @property
    def appends(self) -> bool:
        """Whether every run appends all rows as events, without comparing them with the topic."""
        return self.materialization == KAFKA and self.update_mode == "append"

    @property
    def streams(self) -> bool:
        """Whether the model is a stream: its SELECT reads new events through `stream()`."""
        return self.trigger in STREAMS


def parse(materialization: str, model_name: str, config: Mapping[str, Any], other_problems: Sequence[str] = ()) -> ModelOptions:
    """Read and check the options in dbt's `model.config`.

    Args:
        other_problems: of the model's variables and constraints, to be reported in the same error.

    Raises:
        OptionsError: lists every problem, one per line.
    """
    checked = check(materialization, dialects.collect(materialization, config))
    _raise(model_name, [*checked.problems, *other_problems])
    known = {f.name for f in fields(ModelOptions)}
    values = {name: value for name, value in checked.values.items() if name in known and value is not None}
    warnings = tuple(f"{model_name}: {warning}" for warning in checked.warnings)
    return ModelOptions(materialization=materialization, warnings=warnings, **values)


def check_columns(options: ModelOptions, model_name: str, columns: Sequence[str]) -> None:
    """Check the options that name columns. Names are case-insensitive, as in Spark.

    Raises:
        OptionsError: lists every problem, one per line.
    """
    known = {c.lower(): c for c in columns}
    key = {c.lower() for c in options.unique_key}
    excluded = {c.lower() for c in options.exclude_columns}
    problems = [
        f"{option}: the SELECT has no column {name}, its columns are {', '.join(columns)}{_hint(name, known)}"
        for option in ("unique_key", "sequence_by", "exclude_columns", "plan_mask")
        for name in getattr(options, option)
        if name.lower() not in known
    ]
    problems += [
        f"exclude_columns: {known[c]} is part of unique_key, whose columns are always published"
        for c in sorted(key & excluded & known.keys())
    ]
    if prefix := options.key_fields_prefix:
        setting = f"key_fields_prefix={prefix!r}"
        for c in options.unique_key:
            if not c.lower().startswith(prefix.lower()):
                problems.append(f"{setting}: key column {c} does not start with this prefix")
            elif len(c) == len(prefix):
                problems.append(f"{setting}: key column {c} has no name without this prefix")
    if not problems and options.value_fields_include == "EXCEPT_KEY" and not known.keys() - key - excluded:
        problems.append(
            "value_fields_include='EXCEPT_KEY': every column is part of unique_key, so the value would be empty; use ALL"
        )
    _raise(model_name, problems)


def _hint(name: str, known: Mapping[str, str]) -> str:
    if any(sign in name for sign in ",;"):
        return "; use a list to name several columns"
    near = dialects.nearest(name.lower(), known, cutoff=0.5)
    return f"; did you mean {known[near]}?" if near else ""


def _raise(model_name: str, problems: Sequence[str]) -> None:
    if problems:
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        # Names of options are shown as they are written, and may contain line breaks.
        lines = "\n".join("  - " + problem.replace("\n", "\\n") for problem in problems)
        raise OptionsError(f"{model_name}: {count} with the options; nothing was read or written\n{lines}")
