"""The commands `upsert-kafka topic`, `topics` and `describe`: options and output. They read, and write nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click
from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from dbt.adapters.upsert_kafka.errors import StateError, UpsertKafkaError, in_one_line, without_secrets
from dbt.adapters.upsert_kafka.formats.decode import Decoder
from dbt.adapters.upsert_kafka.inspection import show
from dbt.adapters.upsert_kafka.inspection.project import Project, ProjectModel, load
from dbt.adapters.upsert_kafka.inspection.records import Reader, Selection, Shown
from dbt.adapters.upsert_kafka.kafka_client import groups, topics
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.kafka_client.topics import Topic
from dbt.adapters.upsert_kafka.operations.admin_clients import admin_clients
from dbt.adapters.upsert_kafka.operations.environment import Environment, trusted
from dbt.adapters.upsert_kafka.options.dialects import nearest
from dbt.adapters.upsert_kafka.state.record import StateRecord, time_text

LIMIT = 100
COLUMNS = ("partition", "offset", "time", "key", "value")
DBT_FLAGS = ("project-dir", "profiles-dir", "profile", "target", "vars")
SUMMARY = ("model", "topic", "owner", "environment", "records", "live_keys", "last_run", "lag", "note")
Rows = list[dict[str, Any]]
output_option = click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", help="Default: table.")


def dbt_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """dbt's flags for project and profile, with dbt's meaning and defaults."""
    for flag in reversed(DBT_FLAGS):
        command = click.option(f"--{flag}", metavar="…", help=f"As in dbt: --{flag}.")(command)
    return command


def dbt_arguments(**flags: str | None) -> list[str]:
    """The flags as dbt takes them."""
    return [part for name, value in flags.items() if value is not None for part in (f"--{name.replace('_', '-')}", value)]


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """Turn errors into click's: one line, exit code 1."""
    try:
        yield
    except UpsertKafkaError as error:
        raise click.ClickException(without_secrets(str(error.msg).strip())) from error
    except KafkaError as error:
        raise click.ClickException(f"Kafka answered with an error: {error}") from error


@click.command()
@click.argument("name")
@click.option("--bootstrap-servers", metavar="HOST:PORT,…", help="Read from this cluster, without a project.")
@click.option("--limit", type=click.IntRange(1), help="Show at most this many records. Default: 100, with --follow no limit.")
@click.option("--tail", type=click.IntRange(1), metavar="N", help="Show the last N records only.")
@click.option("--follow", is_flag=True, help="Wait for new records until Ctrl-C.")
@click.option("--key", help='Only records with this key: the whole key as shown, or the value of its only column, as in "7".')
@click.option("--partition", type=click.IntRange(0), help="Only records of this partition.")
@click.option("--from", "start", metavar="OFFSETS", default="", help="The offsets to start from, such as 0:12,1:7.")
@output_option
@dbt_flags
def topic(
    name: str, bootstrap_servers: str | None, limit: int | None, tail: int | None, follow: bool, key: str | None,
    partition: int | None, start: str, output: str, **flags: str | None,
) -> None:  # fmt: skip
    """Show the committed records of a topic. NAME is a model or a topic.

    Avro is decoded with the columns of the last run, or with the schema registry. Times are in UTC.
    """
    selection = Selection(_offsets(start), partition, key, limit or (None if follow else LIMIT), tail, follow)
    with errors_in_one_line():
        if bootstrap_servers is not None:
            reader = Reader(KafkaSettings(bootstrap_servers), name, (Decoder(), Decoder()))
        else:
            reader = _reader(load(dbt_arguments(**flags)), name)
        try:
            _print(reader, selection, output)
        except KeyboardInterrupt:
            click.echo(err=True)
        finally:
            reader.close()


def _reader(project: Project, name: str) -> Reader:
    model = project.find(name)
    kafka = model.topic.kafka if model else project.kafka
    topic_name = model.topic.topic if model else name
    with kafka.admin() as admin:
        record = _record(project.environment, kafka, admin, topic_name)
    return Reader(kafka, topic_name, project.decoders(model, topic_name, record), [m.name for m in project.models])


def _offsets(text: str) -> dict[int, int]:
    try:
        return {int(p): int(o) for p, _, o in (part.partition(":") for part in text.split(",") if part)}
    except ValueError as error:
        raise click.BadParameter(f"'{text}' is not a list partition:offset,partition:offset", param_hint="--from") from error


def _print(reader: Reader, selection: Selection, output: str) -> None:
    records = reader.read(selection)
    rows: list[list[str]] = []
    if output == "json":
        show.json_lines(record.as_json() for record in records)
    elif selection.follows:
        for record in records:
            click.echo("  ".join(_cells(record)))
    else:
        rows = [_cells(record) for record in records]
        show.table(COLUMNS, rows)
    after = ",".join(f"{partition}:{offset}" for partition, offset in reader.next_offsets.items())
    if reader.is_cut:
        click.echo(f"There are more records than --limit {selection.limit}. To show them: --from {after}", err=True)
    elif output != "json" and not selection.follows:
        click.echo(f"{len(rows)} record{'' if len(rows) == 1 else 's'}; to show later records: --from {after}")


def _cells(record: Shown) -> list[str]:
    key, value = record.texts
    headers = f"  [{', '.join(f'{name}={text}' for name, text in record.headers)}]" if record.headers else ""
    shown_key, shown_value = "(no key)" if key is None else key, "(tombstone)" if value is None else value
    return [str(record.partition), str(record.offset), record.time, shown_key, shown_value + headers]


@click.command("topics")
@output_option
@dbt_flags
def topics_command(output: str, **flags: str | None) -> None:
    """Show what the project publishes: topic, owner, records, live keys, last run, and the lag of consumer groups."""
    with errors_in_one_line(), admin_clients() as admin_of:
        project = load(dbt_arguments(**flags))
        rows = _summaries(project, sorted(project.models, key=lambda model: model.name), admin_of)
    if output == "json":
        show.json_lines(rows)
    elif rows:
        names = [name for name in rows[0] if name != "note" or any(row["note"] for row in rows)]
        show.table([name.replace("_", " ") for name in names], [[_cell(row[name]) for name in names] for row in rows])
    else:
        click.echo("No model of this project publishes to a topic.")


@click.command()
@click.argument("model")
@output_option
@dbt_flags
def describe(model: str, output: str, **flags: str | None) -> None:
    """Show a model's topic: key, formats, settings, owner, last run. MODEL is a model or a topic."""
    with errors_in_one_line(), admin_clients() as admin_of:
        project = load(dbt_arguments(**flags))
        found = project.find(model)
        if found is None:
            names = sorted(m.name for m in project.models)
            near = nearest(model, [*names, *(m.topic.topic for m in project.models)])
            hint = f" Did you mean '{near}'?" if near else ""
            known = ", ".join(names) or "none"
            raise click.ClickException(f"No model '{model}' of this project publishes to a topic.{hint} Models that do: {known}")
        admin = admin_of(found.topic.kafka)
        [summary] = _summaries(project, [found], admin_of)
        values = {**_definition(found), **summary, **_live(project, found, admin)}
    if output == "json":
        show.json_lines([values])
    else:
        show.pairs({name.replace("_", " "): _cell(value) for name, value in values.items()})


def _definition(model: ProjectModel) -> dict[str, Any]:
    options = model.options
    return {
        "model": model.name,
        "description": model.description,
        "materialized": options.materialization,
        "key": ", ".join(options.unique_key) or None,
        "key_format": options.key_format if options.unique_key else None,
        "value_format": options.value_format,
        "delivery": options.sink_delivery_guarantee,
        "bootstrap_servers": model.topic.kafka.bootstrap_servers,
    }


def _summaries(project: Project, models: Sequence[ProjectModel], admin_of: Callable[[KafkaSettings], KafkaAdminClient]) -> Rows:
    """One row per model. What this user may not see is left out, with a note."""
    rows, clusters = [], dict[KafkaAdminClient, dict[str, Topic]]()
    for model in models:
        row = dict.fromkeys(SUMMARY) | {"model": model.name, "topic": model.topic.topic, "lag": {}}
        rows.append(row)
        admin = admin_of(model.topic.kafka)
        try:
            found = topics.describe(admin, model.topic.topic)
            row |= _state(_record(project.environment, model.topic.kafka, admin, model.topic.topic))
        except (UpsertKafkaError, KafkaError) as error:
            row["note"] = in_one_line(error, "could not be read")
            continue
        if found is not None:
            row["records"] = sum(found.end[p] - found.first[p] for p in found.end)
            clusters.setdefault(admin, {})[found.name] = found
    for admin, found_topics in clusters.items():
        lags, note = _lags(admin, found_topics.values())
        for row in rows:
            if row["topic"] in found_topics:
                row |= {"lag": lags[row["topic"]], "note": note}
    return rows


def _state(record: StateRecord | None) -> dict[str, Any]:
    if record is None:
        return {}
    return {
        "owner": f"{record.owner.project}.{record.owner.model}",
        "environment": record.owner.environment,
        "live_keys": record.log.live_keys if record.log else None,
        "last_run": record.published.at if record.published else None,
    }


def _live(project: Project, model: ProjectModel, admin: KafkaAdminClient) -> dict[str, Any]:
    record = _record(project.environment, model.topic.kafka, admin, model.topic.topic)
    found = topics.statistics(admin, model.topic.topic)
    columns = ", ".join(f"{name} {kind}" for name, kind in record.layout.columns) if record and record.layout else None
    if found is None:
        return {"columns": columns, "note": "the topic does not exist yet: run the model"}
    newest = time_text(found.newest_millis / 1000) if found.newest_millis is not None else None
    settings = {"partitions": found.partitions, "cleanup_policy": found.cleanup_policy, "bytes": found.bytes}
    return {**settings, "newest_record": newest, "columns": columns}


def _record(environment: Environment, kafka: KafkaSettings, admin: KafkaAdminClient, topic_name: str) -> StateRecord | None:
    """The state record of a topic, if it describes the topic that is there now."""
    try:
        store = environment.store(kafka, admin)
    except StateError:  # the profile has no state topic, or this user may not read it
        return None
    record = store.get(admin, topic_name)
    return record if trusted(store, admin, record).owner is not None else None


def _lags(admin: KafkaAdminClient, found: Iterable[Topic]) -> tuple[dict[str, dict[str, int]], str | None]:
    """For each topic the consumer groups that have read it, each with the records that it has not read yet.

    Returns:
        The lags, and a note about groups that this user may not read. Each group is asked once.
    """
    by_name = {topic.name: topic for topic in found}
    lags: dict[str, dict[str, int]] = {name: {} for name in by_name}
    partitions = [(topic.name, partition) for topic in by_name.values() for partition in topic.end]
    hidden = []
    for group in sorted(group["group_id"] for group in admin.list_groups() if group["protocol_type"] in ("consumer", "")):
        try:
            committed = groups.committed(admin, group, partitions)
        except (UpsertKafkaError, KafkaError) as error:
            hidden.append(f"without the lag of a group: {in_one_line(error, group)}")
            continue
        read: dict[str, dict[int, int]] = {}
        for (name, partition), at in committed.items():
            read.setdefault(name, {})[partition] = at.offset
        for name, offsets in read.items():
            topic = by_name[name]
            lags[name][group] = sum(end - offsets.get(partition, topic.first[partition]) for partition, end in topic.end.items())
    return lags, "; ".join(hidden) or None


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {number}" for name, number in value.items()) or "–"
    return "–" if value is None else str(value)
