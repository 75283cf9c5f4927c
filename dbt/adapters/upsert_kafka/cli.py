"""The command `upsert-kafka`: the project's broker in the foreground, and a look into a topic by an independent reader.

What dbt does, dbt's own commands do.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path

import click
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from dbt.adapters.upsert_kafka import class_archive, embedded
from dbt.adapters.upsert_kafka.__version__ import version
from dbt.adapters.upsert_kafka.errors import UpsertKafkaError

project_option = click.option(
    "--project-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=".",
    help="The dbt project's folder; the current one by default.",
)


@click.group()
@click.version_option(version, prog_name="dbt-upsert-kafka")
def main() -> None:
    """Helpers around dbt-upsert-kafka."""
    # What matters is raised; the rest is kafka-python's talk about slow moments.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)


@main.command()
@project_option
def broker(project_dir: Path) -> None:
    """Keep the project's embedded broker up until Ctrl-C.

    dbt commands of the project use this one; kcat or an application can read along at the address that is printed.
    """
    _check_project(project_dir)
    try:
        address = embedded.ensure_running(project_dir)
    except UpsertKafkaError as error:
        raise click.ClickException(str(error.msg)) from error
    click.echo(f"Kafka is up at {address}  (data in {embedded.broker_folder(project_dir)}; Ctrl-C stops it)")
    try:
        while embedded.is_running(project_dir):
            time.sleep(0.5)
    except KeyboardInterrupt:
        goes_on = embedded.stop(project_dir)
        click.echo("\nA dbt command still uses the broker; it stops with it." if goes_on else "\nStopped; the topics stay.")
        return
    raise click.ClickException(f"The broker ended by itself; its log: {embedded.broker_folder(project_dir) / 'broker.log'}")


@main.command("warm-up")
def warm_up() -> None:
    """Fetch all jars, and prepare Java so that every dbt command starts Spark faster. Once; needs no project."""
    click.echo("Preparing Spark and Kafka for faster starts (a minute, once) …", err=True)
    try:
        archive = class_archive.make()
    except UpsertKafkaError as error:
        raise click.ClickException(str(error.msg)) from error
    click.echo(f"Ready ({archive.stat().st_size // 1_000_000} MB in {archive.parent})", err=True)


@main.command()
@click.argument("name")
@click.option("--bootstrap-servers", metavar="HOST:PORT,…", help="A cluster; the project's embedded broker by default.")
@click.option(
    "--from", "since", metavar="OFFSETS", default="", help="Where to begin, as the last line of an earlier look says it: 0:12,1:7"
)
@project_option
def topic(name: str, bootstrap_servers: str | None, since: str, project_dir: Path) -> None:
    """Show a topic's committed records: partition, offset, key, value."""
    try:
        if bootstrap_servers is None:
            _check_project(project_dir)
            bootstrap_servers = embedded.ensure_running(project_dir)
        begin = {int(p): int(o) for p, _, o in (part.partition(":") for part in since.split(",") if part)}
        for line in _records(bootstrap_servers, name, begin):
            click.echo(line)
    except ValueError as error:
        raise click.BadParameter(f"'{since}' is not a list partition:offset,partition:offset", param_hint="--from") from error
    except KafkaError as error:
        raise click.ClickException(f"Topic '{name}' could not be read at '{bootstrap_servers}': {error}") from error
    except UpsertKafkaError as error:
        raise click.ClickException(str(error.msg)) from error


def _records(bootstrap_servers: str, name: str, begin: dict[int, int]) -> Iterator[str]:
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap_servers, group_id=None, auto_offset_reset="earliest", isolation_level="read_committed"
    )
    try:
        partitions = [TopicPartition(name, number) for number in sorted(consumer.partitions_for_topic(name) or ())]
        if not partitions:
            known = ", ".join(sorted(topic for topic in consumer.topics() if not topic.startswith("__"))) or "none"
            raise click.ClickException(f"There is no topic '{name}'; topics: {known}")
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        for partition in partitions:
            if partition.partition in begin:
                consumer.seek(partition, begin[partition.partition])
        yield f"{'partition':>9}  {'offset':>6}  {'key':<32}  value"
        count = 0
        while any(consumer.position(partition) < ends[partition] for partition in partitions):
            for batch in consumer.poll(timeout_ms=1000).values():
                for record in batch:
                    value = "(tombstone)" if record.value is None else _text(record.value)
                    yield f"{record.partition:>9}  {record.offset:>6}  {_text(record.key):<32}  {value}"
                    count += 1
        next_offsets = ",".join(f"{partition.partition}:{ends[partition]}" for partition in partitions)
        yield f"{count} record{'' if count == 1 else 's'}; what comes after them: --from {next_offsets}"
    finally:
        consumer.close()


def _text(data: bytes | None) -> str:
    """As text if it is text, else as hexadecimal digits."""
    if data is None:
        return "(no key)"
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"0x{data.hex()}"
    return text if text.isprintable() else json.dumps(text)


def _check_project(project_dir: Path) -> None:
    if not (project_dir / "dbt_project.yml").is_file():
        raise click.ClickException(
            f"'{project_dir.resolve()}' holds no dbt_project.yml: go to your dbt project or pass --project-dir"
        )


if __name__ == "__main__":
    main()
