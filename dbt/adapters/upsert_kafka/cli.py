"""The command `upsert-kafka`: runs the project's broker in the foreground and prepares Java.

Other commands are in packages of their own, which are imported when the command is used.
"""

from __future__ import annotations

import logging
import time
from importlib import import_module
from pathlib import Path

import click

from dbt.adapters.upsert_kafka import embedded
from dbt.adapters.upsert_kafka.__version__ import version
from dbt.adapters.upsert_kafka.errors import UpsertKafkaError

project_option = click.option(
    "--project-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=".",
    help="The folder of the dbt project. Default: the current folder.",
)


LAZY = {
    "apply": "plan.commands:apply",
    "dbt": "resident.command:dbt",
    "describe": "inspection.commands:describe",
    "plan": "plan.commands:plan",
    "stream": "continuous.command:stream",
    "topic": "inspection.commands:topic",
    "topics": "inspection.commands:topics_command",
}
"""Commands by name, with the module of this package and the name in it."""


class LazyGroup(click.Group):
    """Imports the module of a command when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *LAZY})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in LAZY:
            return super().get_command(ctx, cmd_name)
        module, _, name = LAZY[cmd_name].partition(":")
        command: click.Command = getattr(import_module(f"{__package__}.{module}"), name)
        return command


@click.group(cls=LazyGroup)
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

    Needed once per machine, and again after an upgrade of Java, Spark or this adapter. Works without a project.
    """
    from dbt.adapters.upsert_kafka.operations import class_archive

    click.echo("Preparing Spark and Kafka for faster starts (takes about a minute, once) …", err=True)
    try:
        archive = class_archive.write()
    except UpsertKafkaError as error:
        raise click.ClickException(str(error.msg)) from error
    click.echo(f"Ready ({archive.stat().st_size // 1_000_000} MB in {archive.parent})", err=True)


def _check_project(project_dir: Path) -> None:
    if not (project_dir / "dbt_project.yml").is_file():
        raise click.ClickException(
            f"'{project_dir.resolve()}' has no dbt_project.yml. Change to the folder of your dbt project, or pass --project-dir."
        )


if __name__ == "__main__":
    main()
