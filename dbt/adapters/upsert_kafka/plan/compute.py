"""Computes the plan of a project's models, and applies it.

Leaves to `run` how dbt is driven, and to `publish` what a model would do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dbt.adapters.upsert_kafka.__version__ import version
from dbt.adapters.upsert_kafka.errors import UpsertKafkaError, count_of
from dbt.adapters.upsert_kafka.plan import run
from dbt.adapters.upsert_kafka.plan.current import Command
from dbt.adapters.upsert_kafka.plan.document import CHANGES, FAILED, NOT_PLANNED, REFUSED, ModelPlan, Plan
from dbt.adapters.upsert_kafka.plan.run import Failure, Project
from dbt.adapters.upsert_kafka.plan.upstream import Unpublished, changing_upstream
from dbt.adapters.upsert_kafka.state.record import now_text

STREAM = "is a stream: what it will read is not known before it runs"
HIDDEN = "failed. The message is not shown, because the model has plan_mask and it may contain values: see `dbt run`"
REGISTERED = tuple(f'"{name}"' for name in ("avro-confluent", "json-schema-confluent"))


def plan(project: Project, samples: int) -> Plan:
    """The plan of the selected models."""
    chosen = run.selected(project)
    streams = [unique_id for unique_id in chosen if project.is_stream(unique_id)]
    planned = [unique_id for unique_id in chosen if unique_id not in streams]
    command = Command(publishes=False, samples=samples)
    failures = run.plan(project, planned, command)
    models = _planned(project, planned, command, failures)
    models += [_other(project, unique_id, NOT_PLANNED, STREAM) for unique_id in streams]
    return Plan(
        project=project.name,
        target=project.target,
        environment=project.environment,
        created_at=now_text(),
        adapter_version=version,
        invocation=project.invocation,
        models=tuple(_marked(project, model, models) for model in sorted(models, key=_order)),
    )


def _planned(project: Project, unique_ids: Sequence[str], command: Command, failures: Mapping[str, Failure]) -> list[ModelPlan]:
    models: list[ModelPlan] = []
    for unique_id in unique_ids:
        if unique_id in failures:
            continue
        if unique_id in command.readings:
            models.append(ModelPlan.of_source(unique_id, project.node(unique_id).name, *command.readings[unique_id]))
        elif unique_id in command.previews:
            models.append(ModelPlan.of(unique_id, project.materialization(unique_id), command.previews[unique_id]))
    first = {m.unique_id: m.name for m in models if m.status in (CHANGES, REFUSED) and m.unique_id in command.unpublished}
    unpublished = Unpublished(project.manifest.nodes, failures, command.missing, first)
    reasons = unpublished.reasons()
    done = {model.unique_id for model in models}
    for unique_id in unique_ids:
        if unique_id in reasons:
            models.append(_other(project, unique_id, NOT_PLANNED, reasons[unique_id], waits=True))
        elif unique_id not in done:
            models.append(_other(project, unique_id, FAILED, _error(project, unique_id, unpublished)))
    return models


def _error(project: Project, unique_id: str, unpublished: Unpublished) -> str:
    failure = unpublished.failures.get(unique_id, Failure("dbt did not run the model"))
    if failure.is_skipped and (names := unpublished.failed_above(unique_id)):
        return f"was not planned, because it depends on {', '.join(names)}"
    return HIDDEN if project.node(unique_id).config.get("plan_mask") else failure.message


def _other(project: Project, unique_id: str, status: str, error: str, waits: bool = False) -> ModelPlan:
    node = project.node(unique_id)
    return ModelPlan(unique_id, node.name, project.materialization(unique_id), status, error, waits=waits)


def _order(model: ModelPlan) -> tuple[bool, str]:
    """Refused models first."""
    return model.status not in (REFUSED, FAILED), model.name


def _marked(project: Project, model: ModelPlan, models: Sequence[ModelPlan]) -> ModelPlan:
    changing = {other.unique_id: other.name for other in models if other.status in (CHANGES, REFUSED) and other is not model}
    upstream, waits = changing_upstream(model.unique_id, project.manifest.nodes, changing)
    return replace(model, upstream=upstream, waits=waits or model.waits)


def check_applicable(plan: Plan) -> None:
    """Refuse a plan with refused or failed models.

    Raises:
        UpsertKafkaError: names them.
    """
    models = [model for model in plan.models if model.status in (REFUSED, FAILED)]
    refused = [f"{model.name} ({(model.refusals or (model.error,))[0]})" for model in models]
    if refused:
        raise UpsertKafkaError(
            f"This plan is refused: {count_of(len(refused), 'model')} would not be published: {'; '.join(refused)}. Nothing was "
            "written. Remove the reason, or plan with --exclude, and plan again."
        )


def apply(project: Project, plan: Plan) -> None:
    """Publish the models of a plan, if all of them are as they were planned.

    With several models, all are checked before the first is published. Each is checked again directly before it is written.

    Raises:
        UpsertKafkaError: what changed, or which model failed.
    """
    planned = {model.unique_id: model.fingerprint for model in plan.applied}
    missing = [model.name for model in plan.applied if project.node(model.unique_id) is None]
    if missing:
        raise UpsertKafkaError(
            f"The project does not have the planned models {', '.join(missing)} any more. Nothing was written."
        )
    if (plan.project, plan.environment) != (project.name, project.environment):
        raise UpsertKafkaError(
            f"This is a plan for project {plan.project}, environment {plan.environment}, and this is project {project.name}, "
            f"environment {project.environment}. Nothing was written."
        )
    if len(planned) > 1 or any(_registers(model) for model in plan.applied):
        checked = Command(publishes=False, planned=planned)
        # The check removes hooks from its manifest, so it has one of its own.
        failures = run.plan(run.load(project.flags, replace(project.invocation, vars=None)), list(planned), checked)
        refused = [f"model {found.model}: {reason}" for found in checked.previews.values() for reason in found.refusals]
        if failures or refused:
            reasons = [*(failure.message for failure in failures.values()), *refused]
            raise UpsertKafkaError("\n".join([*reasons, "Nothing was written for any model of the plan."]))
    failures = run.publish(project, list(planned), Command(publishes=True, planned=planned))
    if failures:
        names = ", ".join(sorted(project.node(unique_id).name for unique_id in failures if project.node(unique_id)))
        raise UpsertKafkaError(f"Not published: {names}. dbt's output above has the reason. Run upsert-kafka plan again.")


def _registers(model: ModelPlan) -> bool:
    """Whether a run registers a schema before it compares."""
    return any(f'"format": {name}' in model.fingerprint.layout for name in REGISTERED)
