"""The command `upsert-kafka stream`: its options, signals and exit code."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from dbt.adapters.upsert_kafka.continuous import models
from dbt.adapters.upsert_kafka.continuous.metrics import MetricsServer
from dbt.adapters.upsert_kafka.continuous.report import Reporter
from dbt.adapters.upsert_kafka.continuous.running import RunningStream
from dbt.adapters.upsert_kafka.continuous.supervisor import Supervisor
from dbt.adapters.upsert_kafka.dbt_internals import multi_option
from dbt.adapters.upsert_kafka.inspection.commands import dbt_arguments, dbt_flags, errors_in_one_line
from dbt.adapters.upsert_kafka.spark import settings

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@click.command()
@click.option("-s", "--select", cls=multi_option(), multiple=True, type=tuple, metavar="…", help="As in dbt: --select.")
@click.option("--exclude", cls=multi_option(), multiple=True, type=tuple, metavar="…", help="As in dbt: --exclude.")
@click.option("--selector", metavar="…", help="As in dbt: --selector.")
@click.option("--threads", type=click.IntRange(1), metavar="N", help="As in dbt: --threads, for the start of the streams.")
@click.option("--metrics-port", type=click.IntRange(0, 65535), metavar="PORT", help="Serve /metrics (Prometheus) and /health.")
@click.option(
    "--report-interval", type=click.FloatRange(0.1), default=10.0, show_default=True, metavar="SECONDS",
    help="If the output is no terminal: how often a JSON line is printed for each model.",
)  # fmt: skip
@click.option(
    "--max-restarts", type=click.IntRange(0), default=10, show_default=True, metavar="N",
    help="End with exit code 1 after more failures of a model without a batch in between.",
)  # fmt: skip
@click.option(
    "--end-seconds", type=click.FloatRange(0.0), default=25.0, show_default=True, metavar="SECONDS",
    help="After Ctrl-C or SIGTERM: how long running batches may take to finish.",
)  # fmt: skip
@dbt_flags
def stream(
    select: Sequence[str], exclude: Sequence[str], selector: str | None, threads: int | None, metrics_port: int | None,
    report_interval: float, max_restarts: int, end_seconds: float, **flags: str | None,
) -> None:  # fmt: skip
    """Run the continuous models of the project until Ctrl-C or SIGTERM.

    Publishes new events of the models with trigger='continuous' at their trigger_interval, all in one Spark. A stream that fails
    is started again after a pause. The command ends between two batches.
    """
    selection = [*_values("--select", select), *_values("--exclude", exclude), *dbt_arguments(selector=selector)]
    arguments = dbt_arguments(threads=None if threads is None else str(threads))
    settings.expect_to_run_for_long()
    with errors_in_one_line():
        prepared = models.prepare(dbt_arguments(**flags), selection, arguments)
        streams = [RunningStream(model, max_restarts) for model in prepared]
        with _ending() as ending:
            supervisor = Supervisor(streams, ending.is_set, end_seconds)
            failures = _run(supervisor, report_interval, metrics_port)
    if failures:
        raise click.ClickException("\n".join(failures))


def _run(supervisor: Supervisor, report_interval: float, metrics_port: int | None) -> list[str]:
    server = None
    try:
        with Reporter(report_interval) as reporter:
            if metrics_port is not None:
                server = MetricsServer(metrics_port, supervisor.lines, supervisor.problems)
                reporter.message(f"Metrics: http://localhost:{server.port}/metrics")
            return supervisor.run(reporter)
    except OSError as error:
        raise click.ClickException(f"--metrics-port {metrics_port}: {error.strerror}") from error
    finally:
        if server is not None:
            server.close()


def _values(flag: str, values: Sequence[Any]) -> list[str]:
    flat = [text for value in values for text in (value if isinstance(value, tuple) else (value,))]
    return [flag, *flat] if flat else []


@contextmanager
def _ending() -> Iterator[threading.Event]:
    """An event that is set by Ctrl-C and SIGTERM."""
    event = threading.Event()
    before = {number: signal.signal(number, lambda *_: event.set()) for number in SIGNALS}
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
