"""The commands `upsert-kafka plan` and `apply`: options, output and exit codes.

Exit codes of `plan`: 0 planned, 1 refused or failed; with --detailed-exitcode also 2 for changes. Of `apply`: 0 or 1.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from dbt.adapters.upsert_kafka.errors import UpsertKafkaError, count_of, without_secrets
from dbt.adapters.upsert_kafka.inspection.commands import dbt_arguments, errors_in_one_line
from dbt.adapters.upsert_kafka.plan import compute, document, files, run, text
from dbt.adapters.upsert_kafka.plan.document import CHANGES, Invocation, ModelPlan, Plan
from dbt.adapters.upsert_kafka.publish.request import EXAMPLES

PROJECT_FLAGS = ("project-dir", "profiles-dir", "profile", "threads")
MAX_SAMPLES = 100


def _flags(*names: str) -> Any:
    def decorate(command: Any) -> Any:
        for name in reversed(names):
            command = click.option(f"--{name}", metavar="…", help=f"As in dbt: --{name}.")(command)
        return command

    return decorate


def _repeated(name: str, *short: str) -> Any:
    """An option of dbt that takes several values: `--select a b` or `--select a --select b`."""
    return click.option(f"--{name}", *short, multiple=True, metavar="…", help=f"As in dbt: --{name}, also several values.")


class DbtCommand(click.Command):
    """A command whose options --select and --exclude take several values after one name, as dbt's do."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        several = {"--select", "-s", "--models", "-m", "--exclude"}
        found: list[str] = []
        option: str | None = None
        for argument in args:
            if argument in several:
                option = {"--models": "--select", "-m": "--select"}.get(argument, argument)
                continue
            if argument.startswith("-"):
                option = None
            found += [option, argument] if option else [argument]
        return super().parse_args(ctx, found)


@click.command("plan", cls=DbtCommand)
@_repeated("select", "-s")
@_repeated("exclude")
@_flags("selector", "state", "vars", "target", *PROJECT_FLAGS)
@click.option("--defer/--no-defer", default=False, help="As in dbt: read upstream models of --state that were not built here.")
@click.option("--favor-state/--no-favor-state", default=False, help="As in dbt: --favor-state.")
@click.option("--full-refresh", "-f", is_flag=True, help="As in dbt: plan a run that publishes every row.")
@click.option("-o", "--output", type=click.Path(file_okay=False, path_type=Path), default="plan", show_default=True,
              help="The folder for plan.json, plan.md and plan.html.")  # fmt: skip
@click.option("--samples", type=click.IntRange(0, MAX_SAMPLES), default=EXAMPLES, show_default=True,
              help="How many changes of each kind are shown for each model.")  # fmt: skip
@click.option(
    "--detailed-exitcode", is_flag=True, help="Exit with 0 if there is nothing to do, 2 if there are changes, 1 otherwise."
)
def plan(
    select: tuple[str, ...], exclude: tuple[str, ...], output: Path, samples: int, detailed_exitcode: bool, **flags: Any
) -> None:
    """Show what `dbt run` would send to topics, and write nothing but the plan.

    Only models of this adapter are planned. Upstream tables are read as they are, hooks do not run.
    """
    names = ("selector", "vars", "full_refresh", "defer", "favor_state", "state")
    chosen = {name: flags.pop(name) for name in names}
    invocation = Invocation(select, exclude, **chosen)
    with errors_in_one_line():
        project = run.load(dbt_arguments(**flags), invocation)
        planned = compute.plan(project, samples)
        files.write(planned, output)
    _print(planned, output)
    if planned.is_refused:
        sys.exit(1)
    if detailed_exitcode and planned.of_status(CHANGES):
        sys.exit(2)


@click.command("apply")
@click.argument("path", metavar="PLAN", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--state", metavar="…", help="As in dbt: --state, if the folder is another than that of the plan.")
@click.option("--vars", "variables", metavar="…", help="The --vars of the plan, if they are not in plan.json.")
@_flags(*PROJECT_FLAGS)
def apply(path: Path, state: str | None, variables: str | None, **flags: str | None) -> None:
    """Publish what a plan shows, and nothing else. PLAN is a plan.json.

    Target, variables and models are those of the plan. A model whose rows, options or topic have changed since is not published.
    """
    with errors_in_one_line():
        planned = document.load(path)
        compute.check_applicable(planned)
        left_out = [model for model in planned.models if model in planned.waiting or (model.reads and model.status == CHANGES)]
        if planned.applied:
            invocation = with_vars(planned.invocation, variables)
            project = run.load([*dbt_arguments(**flags), "--target", planned.target], invocation)
            compute.apply(run.with_state(project, state), planned)
        click.echo(f"Published {count_of(len(planned.applied), 'model')}: {count_of(planned.messages, 'message')}, as planned.")
        for model in left_out:
            click.echo(f"Not published: {_why_left_out(model)}")


def with_vars(planned: Invocation, given: str | None) -> Invocation:
    """The flags of a plan, with the variables that plan.json does not have.

    Raises:
        UpsertKafkaError: they are not given, or are given although the plan has its own.
    """
    if planned.needs_vars and given is None:
        raise UpsertKafkaError(
            "The --vars of this plan seem to have a secret, so plan.json does not have them. Nothing was written. "
            "Give apply the same --vars."
        )
    if given is not None and not planned.needs_vars:
        raise UpsertKafkaError("This plan is applied with its own --vars. Nothing was written. Leave out --vars.")
    return replace(planned, vars=given) if planned.needs_vars else planned


def _why_left_out(model: ModelPlan) -> str:
    if model.reads is not None:
        return f"{model.name} is a kafka_source. `dbt run --select {model.name}` pins its offsets."
    if model.error:
        return f"{model.name} {model.error}"
    return f"{model.name} reads {', '.join(model.upstream)}, which this plan changes. Run upsert-kafka plan again."


def _print(planned: Plan, output: Path) -> None:
    for line in _lines(planned, output):
        click.echo(text.visible(without_secrets(line)))


def _lines(planned: Plan, output: Path) -> Iterator[str]:
    for model in planned.models:
        yield f"{model.name}: {summary(model)}"
        yield from (f"  {' '.join(reason.split())}" for reason in (*model.refusals, *([model.error] if model.error else [])))
    if not planned.models:
        yield "No model of this adapter is selected."
    yield f"Plan for target {planned.target}: {count_of(planned.messages, 'message')} to send. See {output / 'plan.html'}"
    if planned.applied and not planned.is_refused:
        variables = " with the same --vars" if files.without_secret_vars(planned).invocation.needs_vars else ""
        yield f"To publish exactly this: upsert-kafka apply {output / 'plan.json'}{variables}"


def summary(model: ModelPlan) -> str:
    """One line about a model."""
    if model.reads is not None:
        return f"{model.status}, a run would read {count_of(model.reads['offsets'], 'offset')} of topic {model.topic}"
    if not model.topic:
        return model.status
    counts = ", ".join(f"{model.counts.get(kind, 0)} {word}" for kind, word in document.KINDS.items() if kind in model.counts)
    later = ", planned with today's upstream" if model.upstream else ""
    return f"{model.status}, topic {model.topic}: {counts}; {count_of(model.messages, 'message')}, {model.bytes} bytes{later}"
