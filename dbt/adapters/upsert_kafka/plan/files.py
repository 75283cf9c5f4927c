"""Writes plan.json, plan.md and plan.html to a folder. Each file is small enough for its purpose; fewer samples make it so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dbt_common.exceptions import env_secrets, scrub_secrets

from dbt.adapters.upsert_kafka.plan import html, markdown
from dbt.adapters.upsert_kafka.plan.document import Plan

MAX_BYTES = 1_900_000
"""Of plan.json and plan.html."""
MAX_COMMENT = 60_000
"""Of plan.md: GitHub's comments have at most 65,536 characters."""


def write(plan: Plan, folder: Path) -> None:
    """Write the three files."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "plan.json").write_text(_fitting(plan, Plan.to_json, MAX_BYTES))
    (folder / "plan.html").write_text(_fitting(plan, html.render, MAX_BYTES))
    (folder / "plan.md").write_text(markdown.cut(_fitting(plan, markdown.render, MAX_COMMENT), MAX_COMMENT))


def _fitting(plan: Plan, render: Callable[[Plan], str], limit: int) -> str:
    """The text with as many samples as fit. Values of secret environment variables are removed, as in dbt's logs."""
    number = max(
        (sum(s.kind == sample.kind for s in model.samples) for model in plan.models for sample in model.samples), default=0
    )
    while True:
        text = scrub_secrets(render(plan.with_samples(number)), env_secrets())
        if len(text.encode()) <= limit or number == 0:
            return text
        number //= 2
