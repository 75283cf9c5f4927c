"""Writes plan.json, plan.md and plan.html to a folder. Each file is small enough for its purpose; fewer samples make it so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from dbt.adapters.upsert_kafka import kafka_properties
from dbt.adapters.upsert_kafka.errors import without_secrets
from dbt.adapters.upsert_kafka.plan import html, markdown
from dbt.adapters.upsert_kafka.plan.document import Plan

MAX_BYTES = 1_900_000
"""Of plan.json and plan.html."""
MAX_COMMENT = 60_000
"""Of plan.md: GitHub's comments have at most 65,536 characters."""


UNCHANGED = ("unique_id", "materialization", "status", "kind", "fingerprint")
"""Fields that `apply` needs as they are. The options in a fingerprint have no secrets, see `publish.fingerprint`."""


def write(plan: Plan, folder: Path) -> None:
    """Write the three files."""
    plan = without_secret_vars(scrubbed(plan))
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        "plan.json": _fitting(plan, Plan.to_json, MAX_BYTES),
        "plan.html": _fitting(plan, html.render, MAX_BYTES),
        "plan.md": markdown.cut(_fitting(plan, markdown.render, MAX_COMMENT), MAX_COMMENT),
    }
    for name, text in texts.items():
        # Half a surrogate pair, which JSON values may have, has no UTF-8. JSON has the same escape as Python.
        (folder / name).write_bytes(text.encode(errors="backslashreplace"))


def without_secret_vars(plan: Plan) -> Plan:
    """The plan without --vars if they seem to have a secret, which `apply` then has to be given again."""
    given = plan.invocation.vars
    if given is None or (given == without_secrets(given) and not _names_secret(_parsed(given))):
        return plan
    return replace(plan, invocation=replace(plan.invocation, vars=None, needs_vars=True))


def scrubbed(value: Any) -> Any:
    """A plan or a part of it without the values of secret environment variables. Comes before escaping: HTML has `a&amp;b`."""
    if isinstance(value, str):
        text = without_secrets(value)
        return value if text == value else text
    if is_dataclass(value) and not isinstance(value, type):
        others = [field.name for field in fields(value) if field.name not in UNCHANGED and field.name != "vars"]
        return replace(value, **{name: scrubbed(getattr(value, name)) for name in others})
    if isinstance(value, Mapping):
        return {scrubbed(name): scrubbed(content) for name, content in value.items()}
    return type(value)(map(scrubbed, value)) if isinstance(value, list | tuple) else value


def _parsed(given: str) -> Any:
    from dbt.clients.yaml_helper import load_yaml_text  # dbt has read the same text before

    return load_yaml_text(given)


def _names_secret(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(kafka_properties.is_secret(str(name)) or _names_secret(content) for name, content in value.items())
    return isinstance(value, list) and any(map(_names_secret, value))


def _fitting(plan: Plan, render: Callable[[Plan], str], limit: int) -> str:
    """The text with as many samples as fit."""
    number = max(
        (sum(s.kind == sample.kind for s in model.samples) for model in plan.models for sample in model.samples), default=0
    )
    while True:
        text = render(plan.with_samples(number))
        if len(text.encode(errors="backslashreplace")) <= limit or number == 0:
            return text
        number //= 2
