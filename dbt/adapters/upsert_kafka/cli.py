"""The command `upsert-kafka`: runs the project's broker in the foreground, prepares Java, and shows the records of a topic.

It does nothing that a dbt command does. Topics are read with kafka-python, independently of Spark.
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

from dbt.adapters.upsert_kafka import embedded
from dbt.adapters.upsert_kafka.__version__ import version
from dbt.adapters.upsert_kafka.errors import UpsertKafkaError
from dbt.adapters.upsert_kafka.operations import class_archive

project_option = click.option(
    "--project-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=".",
    help="The folder of the dbt project. Default: the current folder.",
)


@click.group()
@click.version_option(version, prog_name="dbt-upsert-kafka")
def main() -> None:
    """Commands for projects that use dbt-upsert-kafka."""
    # Errors are raised. kafka-python also logs each retry.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)


@main.command()
@project_option
def broker(project_dir: Path) -> None:
    """Run the project's embedded broker until Ctrl-C.

    The dbt commands of the project use this broker. Other clients, such as kcat, can connect to the address that is printed.
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
        still_used = embedded.stop(project_dir)
        click.echo(
            "\nA dbt command still uses the broker. It stops when the command ends."
            if still_used
            else "\nStopped. The topics are kept."
        )
        return
    raise click.ClickException(f"The broker stopped unexpectedly. Its log: {embedded.broker_folder(project_dir) / 'broker.log'}")


@main.command("warm-up")
def warm_up() -> None:
    """Download all jars and prepare Java, so that dbt commands start Spark faster.

    Needed once per machine, and again after an upgrade of Java or Spark. Works without a project.
    """
    click.echo("Preparing Spark and Kafka for faster starts (takes about a minute, once) …", err=True)
    try:
        archive = class_archive.write()
    except UpsertKafkaError as error:
        raise click.ClickException(str(error.msg)) from error
    click.echo(f"Ready ({archive.stat().st_size // 1_000_000} MB in {archive.parent})", err=True)


@main.command()
@click.argument("name")
@click.option("--bootstrap-servers", metavar="HOST:PORT,…", help="The Kafka cluster. Default: the project's embedded broker.")
@click.option(
    "--from",
    "start",
    metavar="OFFSETS",
    default="",
    help="The offsets to start from, such as 0:12,1:7. The last line of the output shows those of the next records.",
)
@project_option
def topic(name: str, bootstrap_servers: str | None, start: str, project_dir: Path) -> None:
    """Show the committed records of a topic: partition, offset, key, value."""
    try:
        if bootstrap_servers is None:
            _check_project(project_dir)
            bootstrap_servers = embedded.ensure_running(project_dir)
        offsets = {int(p): int(o) for p, _, o in (part.partition(":") for part in start.split(",") if part)}
        for line in _records(bootstrap_servers, name, offsets):
            click.echo(line)
    except ValueError as error:
        raise click.BadParameter(f"'{start}' is not a list partition:offset,partition:offset", param_hint="--from") from error
    except KafkaError as error:
        raise click.ClickException(f"Topic '{name}' at '{bootstrap_servers}' cannot be read: {error}") from error
    except UpsertKafkaError as error:
        raise click.ClickException(str(error.msg)) from error


def _records(bootstrap_servers: str, name: str, start: dict[int, int]) -> Iterator[str]:
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap_servers, group_id=None, auto_offset_reset="earliest", isolation_level="read_committed"
    )
    try:
        partitions = [TopicPartition(name, number) for number in sorted(consumer.partitions_for_topic(name) or ())]
        if not partitions:
            known = ", ".join(sorted(topic for topic in consumer.topics() if not topic.startswith("__"))) or "none"
            raise click.ClickException(f"There is no topic '{name}'. Topics: {known}")
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        for partition in partitions:
            if partition.partition in start:
                consumer.seek(partition, start[partition.partition])
        yield f"{'partition':>9}  {'offset':>6}  {'key':<32}  value"
        count = 0
        while any(consumer.position(partition) < ends[partition] for partition in partitions):
            for batch in consumer.poll(timeout_ms=1000).values():
                for record in batch:
                    value = "(tombstone)" if record.value is None else _text(record.value)
                    yield f"{record.partition:>9}  {record.offset:>6}  {_text(record.key):<32}  {value}"
                    count += 1
        next_offsets = ",".join(f"{partition.partition}:{ends[partition]}" for partition in partitions)
        yield f"{count} record{'' if count == 1 else 's'}; to show later records: --from {next_offsets}"
    finally:
        consumer.close()


def _text(data: bytes | None) -> str:
    """Decode UTF-8; other bytes become hexadecimal digits."""
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
            f"'{project_dir.resolve()}' has no dbt_project.yml. Change to the folder of your dbt project, or pass --project-dir."
        )


if __name__ == "__main__":
    main()
