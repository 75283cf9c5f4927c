"""Runs dbt for `plan` and `apply`: parses the project, selects our materializations, and runs them.

A plan runs without hooks and with a target folder of its own, so that nothing of the project is changed.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dbt.adapters.upsert_kafka import dbt_internals
from dbt.adapters.upsert_kafka.errors import UpsertKafkaError, in_one_line
from dbt.adapters.upsert_kafka.options.table import MATERIALIZATIONS, STREAMS
from dbt.adapters.upsert_kafka.plan import current
from dbt.adapters.upsert_kafka.plan.current import Command
from dbt.adapters.upsert_kafka.plan.document import Invocation

SILENT = ("--log-level", "none", "--log-level-file", "none")
TAG = "upsert-kafka-planned"
"""Selects the models of a command: dbt has no selector for unique ids."""


@dataclass(frozen=True)
class Failure:
    """Why dbt did not complete a model."""

    message: str
    is_skipped: bool = False
    """Because a model that it depends on failed."""


@dataclass(frozen=True)
class Project:
    """A parsed project."""

    flags: tuple[str, ...]
    """dbt's flags for project, profile and target."""
    invocation: Invocation
    manifest: Any
    name: str
    target: str
    environment: str

    def node(self, unique_id: str) -> Any:
        """The model, or None if the project has none with this id."""
        return self.manifest.nodes.get(unique_id)

    def materialization(self, unique_id: str) -> str:
        return str(self.manifest.nodes[unique_id].config.materialized)

    def is_stream(self, unique_id: str) -> bool:
        return self.manifest.nodes[unique_id].config.get("trigger") in STREAMS


def load(flags: Sequence[str], invocation: Invocation) -> Project:
    """Parse the project as dbt does.

    Raises:
        UpsertKafkaError: dbt could not parse it, or its profile is of another adapter.
    """
    from dbt.adapters.factory import get_adapter_by_type
    from dbt.cli.main import dbtRunner

    with_vars = [*flags, *(["--vars", invocation.vars] if invocation.vars else [])]
    with tempfile.TemporaryDirectory() as target:
        parsed = dbtRunner().invoke([*SILENT, *_parsed_before(flags), "parse", "--target-path", target, *with_vars])
    if not parsed.success:
        raise UpsertKafkaError(in_one_line(parsed.exception, "dbt could not parse the project"))
    try:
        config = get_adapter_by_type("upsert_kafka").config
    except KeyError:
        raise UpsertKafkaError("the target of this project is not of type upsert_kafka") from None
    target = dbt_internals.target_name(config)
    environment = config.credentials.environment or target
    return Project(tuple(with_vars), invocation, parsed.result, config.project_name, target, str(environment))


def _parsed_before(flags: Sequence[str]) -> list[str]:
    """dbt's flag for what an earlier command parsed, which saves time in large projects. The file is read, not written."""
    values = dict(zip(flags[::2], flags[1::2], strict=False))
    path = Path(values.get("--project-dir") or ".", "target", "partial_parse.msgpack")
    return ["--partial-parse-file-path", str(path)] if path.is_file() else []


def selected(project: Project) -> list[str]:
    """The unique ids of the selected models that have one of our materializations."""
    from dbt.cli.main import dbtRunner

    chosen = project.invocation
    arguments = [*SILENT, "ls", "--resource-type", "model", "--output", "json", "--output-keys", "unique_id", *project.flags]
    for flag, values in (("--select", chosen.select), ("--exclude", chosen.exclude)):
        arguments += [flag, *values] if values else []
    arguments += ["--selector", chosen.selector] if chosen.selector else []
    arguments += ["--state", chosen.state] if chosen.state else []
    with tempfile.TemporaryDirectory() as target:
        listed = dbtRunner(manifest=project.manifest).invoke([*arguments, "--target-path", target])
    if not listed.success:
        raise UpsertKafkaError(in_one_line(listed.exception, "dbt could not select the models"))
    found: list[str] = [json.loads(line)["unique_id"] for line in listed.result or []]  # type: ignore[union-attr]
    return [unique_id for unique_id in found if project.materialization(unique_id) in MATERIALIZATIONS]


def plan(project: Project, unique_ids: Sequence[str], command: Command) -> dict[str, Failure]:
    """Run the models without hooks. `command` has what they found out.

    Returns:
        The models that failed or were skipped, by unique id.
    """
    for unique_id, node in list(project.manifest.nodes.items()):
        if node.resource_type == "operation":
            del project.manifest.nodes[unique_id]
        elif hasattr(node, "config"):
            node.config.pre_hook, node.config.post_hook = [], []
    with tempfile.TemporaryDirectory() as target:
        return _run(project, unique_ids, command, [*SILENT, "run", "--target-path", target])


def publish(project: Project, unique_ids: Sequence[str], command: Command) -> dict[str, Failure]:
    """Run the models as `dbt run` does; returns as `plan`. A failure cancels no other model, which may be half-written."""
    return _run(project, unique_ids, command, ["run"])


def _run(project: Project, unique_ids: Sequence[str], command: Command, arguments: list[str]) -> dict[str, Failure]:
    from dbt.cli.main import dbtRunner

    if not unique_ids:
        return {}
    for unique_id in unique_ids:
        node = project.manifest.nodes[unique_id]
        node.tags = [*node.tags, TAG]
    flags = [*project.flags, "--select", f"tag:{TAG}", *_state_flags(project.invocation)]
    with current.running(command):
        done = dbtRunner(manifest=project.manifest).invoke([*arguments, *flags])
    results = getattr(done.result, "results", None)
    if results is None:
        raise UpsertKafkaError(in_one_line(done.exception, "dbt failed"))
    failed = {
        r.node.unique_id: Failure(str(r.message or r.status).strip(), str(r.status) == "skipped")
        for r in results
        if str(r.status) not in ("success", "pass")
    }
    ran = {r.node.unique_id for r in results}
    return failed | {unique_id: Failure("was not run") for unique_id in unique_ids if unique_id not in ran}


def _state_flags(chosen: Invocation) -> list[str]:
    flags = ["--full-refresh"] if chosen.full_refresh else []
    flags += ["--state", chosen.state] if chosen.state else []
    flags += ["--defer"] if chosen.defer else []
    return flags + (["--favor-state"] if chosen.favor_state else [])


def with_state(project: Project, state: str | None) -> Project:
    """The project with another folder of `--state`."""
    return replace(project, invocation=replace(project.invocation, state=state)) if state else project
