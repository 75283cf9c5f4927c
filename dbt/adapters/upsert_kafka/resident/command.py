"""The help of `upsert-kafka dbt`, and its way in where the program was not started by `__main__`."""

from __future__ import annotations

import sys

import click


@click.command("dbt", context_settings={"ignore_unknown_options": True}, add_help_option=False)
@click.option("--status", is_flag=True, help="Show the resident process of this project, and what it is running.")
@click.option("--stop", is_flag=True, help="End the resident process of this project, after the commands that it is running.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="DBT_ARGUMENTS…")
def dbt(status: bool, stop: bool, arguments: tuple[str, ...]) -> None:
    """Run a dbt command in a resident process, which has dbt imported and Spark running.

    Takes the arguments of dbt: upsert-kafka dbt run -s orders. The resident process starts on first use and ends when it is
    idle. Linux and macOS; elsewhere plain dbt is used.
    """
    from dbt.adapters.upsert_kafka.resident import client

    flags = [flag for flag, given in ((client.STATUS, status), (client.STOP, stop)) if given]
    sys.exit(client.main([*flags, *arguments]))
