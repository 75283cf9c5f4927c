"""Writes docs/options.md from the table that the checker reads: `python docs/options_page.py`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from dbt.adapters.upsert_kafka.kafka_properties import OWNED_UNDER_EXACTLY_ONCE, REFUSED
from dbt.adapters.upsert_kafka.options.format_table import FORMAT_OPTIONS, FormatOption
from dbt.adapters.upsert_kafka.options.table import (
    EVERY_VALUE,
    KAFKA,
    KAFKA_SOURCE,
    MATERIALIZATIONS,
    NOT_AVAILABLE_YET,
    OPTIONS,
    UPSERT_KAFKA,
    Need,
    Option,
)
from dbt.adapters.upsert_kafka.options.values import plain

PAGE = Path(__file__).with_name("options.md")

INTRODUCTION = """\
# Options

<!-- Written by docs/options_page.py from the table that the checker reads. Change the table, then run the script. -->

**One rule for names**: a dot or a hyphen is an underscore. `value.fields-include` is `value_fields_include` in `config()`;
in YAML both spellings work. Model, schema YAML and `dbt_project.yml` are merged by dbt, with dbt's own precedence: spell an
option the same way in all of them.

**Paste a WITH clause**: `with_options` takes the WITH clause of a table as it stands, in the spelling of Flink and Alibaba
Cloud or in that of Huawei DLI, as a map or as text. It is the same as setting the options one by one:

```sql
{{ config(
    materialized='upsert_kafka',
    unique_key='user_region',
    with_options={
      'connector': 'upsert-kafka',
      'topic': 'pageviews_per_region',
      'properties.bootstrap.servers': 'broker:9092',
      'key.format': 'avro',
      'value.format': 'avro'
    }
) }}
```

- An option that is set in two places with different values is an error; so is a WITH clause that mixes the two spellings.
- `connector` must be the model's materialization (`upsert-kafka`: `upsert_kafka`, `kafka`: `kafka`, either: `kafka_source`).
  Huawei's `connector.version` may be 0.10 or 0.11 and has no effect.
- An unknown option in a WITH clause is an error with the nearest name. A `config()` key of your own is left alone; one that
  looks like an option with a typing error is a warning.
- All options of a model are checked before anything is touched, and one error names everything that is wrong.
"""

PROPERTIES = """\
## Kafka client properties

`properties` takes any property of Kafka's producer, consumer and admin client by its Java name: `properties={'linger.ms': 5}`,
or `properties.linger.ms` in YAML and WITH clauses. A property reaches the clients that know it; one that no Kafka client knows
is passed to all of them, with a warning. These can't be set:
"""


def render() -> str:
    """The whole page."""
    parts = [INTRODUCTION, *(_section(*section) for section in _sections()), _formats(), PROPERTIES + _refused()]
    return "\n".join(parts + ([_later()] if NOT_AVAILABLE_YET else []))


def _sections() -> Iterable[tuple[str, list[Option]]]:
    yield "## Options of all materializations", [o for o in OPTIONS if o.on == MATERIALIZATIONS]
    yield "## Options of sinks: `upsert_kafka` and `kafka`", [o for o in OPTIONS if KAFKA_SOURCE not in o.on]
    yield "## Options of `kafka_source`", [o for o in OPTIONS if o.on == (KAFKA_SOURCE,)]


def _section(title: str, options: list[Option]) -> str:
    header = ["option", "Flink, Alibaba Cloud", "Huawei DLI", "values", "default", "meaning"]
    rows = [[f"`{o.name}`", _code(o.flink), _code(o.huawei), _values(o), _default(o), " ".join(_meaning(o))] for o in options]
    return f"{title}\n\n{_table(header, rows)}"


def _values(option: Option) -> str:
    fewer = [f"`{m}`: {', '.join(values)}" for m, values in option.values_on.items()]
    return "; ".join([option.type.describe, *fewer])


def _default(option: Option) -> str:
    if option.default is None:
        return option.default_text
    return "; ".join([plain(option.default), *(f"`{m}`: {value}" for m, value in option.default_on.items())])


def _meaning(option: Option) -> Iterable[str]:
    yield option.meaning
    if option.on == (UPSERT_KAFKA,):
        yield "Only `upsert_kafka`."
    for need in option.needs:
        yield f"{_only(need)}eeds `{need}`."
    for value, needs in option.value_needs.items():
        for need in needs:
            yield f"{_only(need)}eeds `{need}` when {value}."
    for other in option.excludes:
        yield f"Not together with `{other}`."
    if option.no_effect:
        yield f"Checked, and has no effect: {option.no_effect}."


def _only(need: Need) -> str:
    return "N" if need.on == MATERIALIZATIONS else f"On {' and '.join(f'`{m}`' for m in need.on)} n"


def _formats() -> str:
    header = ["format", "option", "values", "default", "meaning"]
    rows = [
        [", ".join(o.formats), f"`{o.name}`", o.type.describe, o.default_text, " ".join(_format_meaning(o))]
        for o in FORMAT_OPTIONS
    ]
    return f"""\
## Options of formats

An option is written with its format: `csv.null-literal` (in `config()`: `csv_null_literal`) is for key and value,
`key.csv.null-literal` and `value.csv.null-literal` are for one of them and win. Without that format it is an error.
Huawei DLI writes those of csv as `format.null-literal`.

{_table(header, rows)}"""


def _format_meaning(option: FormatOption) -> Iterable[str]:
    yield option.meaning
    if option.on == (KAFKA_SOURCE,):
        yield "Only `kafka_source`."
    if option.per_side:
        yield "One for key and value each."
    if option.no_effect:
        yield f"Checked, and has no effect: {option.no_effect}."
    if option.aliases:
        yield f"Also {_code(option.aliases)}."


def _refused() -> str:
    rows = [[f"`{name}`", f"{reason}."] for name, reason in REFUSED.items()]
    rows += [
        [
            f"`isolation.level` = read_uncommitted on `{UPSERT_KAFKA}`, `{KAFKA}`",
            "a topic is compared as committed readers see it.",
        ]
    ]
    rows += [[f"`{name}` with exactly-once", f"{reason}."] for name, reason in OWNED_UNDER_EXACTLY_ONCE.items()]
    return "\n" + _table(["property", "reason"], rows)


def _later() -> str:
    rows = [
        f"- `{name}`" + ("" if later == EVERY_VALUE else f": {', '.join(map(plain, later))}")
        for name, later in NOT_AVAILABLE_YET.items()
    ]
    return "## Not available yet\n\nThese are checked and then refused:\n\n" + "\n".join(rows) + "\n"


def _code(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "–"


def _table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    PAGE.write_text(render())
