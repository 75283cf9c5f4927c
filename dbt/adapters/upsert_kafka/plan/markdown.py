"""plan.md: the plan as GitHub's Markdown, for the comment of a pull request.

Texts of the data are escaped: a value can't become a link, a heading or a mention.
"""

from __future__ import annotations

import html
from collections.abc import Iterator

from dbt.adapters.upsert_kafka.plan import text
from dbt.adapters.upsert_kafka.plan.document import KINDS, ModelPlan, Plan
from dbt.adapters.upsert_kafka.publish.preview import Sample

ICONS = {"refused": "⛔", "failed": "❌", "changes": "✏️", "no changes": "✅", "not planned": "➖"}


def render(plan: Plan) -> str:
    """The whole file."""
    return "\n".join(_lines(plan)) + "\n"


def cut(rendered: str, limit: int) -> str:
    """The first lines, if the file is too large for a comment."""
    if len(rendered.encode()) <= limit:
        return rendered
    lines, length = [], 0
    for line in rendered.splitlines():
        length += len(line.encode()) + 1
        if length > limit - 200:
            break
        lines.append(line)
    return "\n".join([*lines, "", "The rest does not fit into a comment: see plan.html.", ""])


def _lines(plan: Plan) -> Iterator[str]:
    yield f"## {_plain(text.title(plan))}"
    yield ""
    yield _plain(text.headline(plan))
    if not plan.models:
        return
    yield ""
    yield "| | model | topic | new | changed | deleted | unchanged | messages | size |"
    yield "|---|---|---|--:|--:|--:|--:|--:|--:|"
    for model in plan.models:
        yield _row(model)
    for model in plan.models:
        yield from _details(model)
    yield ""
    made = f"{plan.created_at}, environment {plan.environment}, dbt-upsert-kafka {plan.adapter_version}"
    yield f"<sub>{_plain(made)}</sub>"


def _row(model: ModelPlan) -> str:
    counts = model.counts
    numbers = (
        counts.get("insert", 0) + counts.get("append", 0),
        counts.get("update", 0) + counts.get("republish", 0),
        counts.get("delete", 0),
        counts.get("unchanged", 0),
        model.messages,
    )
    of_counts = [*map(text.number, numbers), text.size(model.bytes)] if counts else [""] * 6
    cells = [f"{ICONS[model.status]} {model.status}", _code(model.name), _code(model.topic) if model.topic else "", *of_counts]
    return f"| {' | '.join(cells)} |"


def _details(model: ModelPlan) -> Iterator[str]:
    lines = list(_content(model))
    if not lines:
        return
    is_open = " open" if model.refusals or model.error else ""
    yield ""
    yield f"<details{is_open}><summary>{ICONS[model.status]} <b>{_plain(model.name)}</b>: {model.status}</summary>"
    yield ""
    yield from lines
    yield ""
    yield "</details>"


def _content(model: ModelPlan) -> Iterator[str]:
    for reason in model.refusals:
        yield f"- **Refused:** {_plain(reason)}"
    for mark in text.marks(model):
        yield f"- {_plain(mark)}"
    if model.creates is not None and model.topic:
        settings = ", ".join(f"{name}={value}" for name, value in model.creates.items())
        yield f"- Creates topic {_code(model.topic)}{f' with {_code(settings)}' if settings else ''}"
    for heading, columns, meaning in text.column_changes(model):
        yield f"- **{heading}:** {_plain(columns)} ({meaning})"
    for note in model.notes:
        yield f"- {_plain(note)}"
    for change in model.drift:
        differs = f"is {_code(change.now)}, the model asks for {_code(change.wanted)}"
        yield f"- Topic setting {_code(change.setting)} {differs}; this {_plain(text.drift(model, change))}"
    if model.samples:
        yield ""
        yield "| | key | old | new |"
        yield "|---|---|---|---|"
        for sample in model.samples:
            yield _sample(sample)


def _sample(sample: Sample) -> str:
    fields = text.fields(sample)
    shown = [field for field in fields if field[3]] if sample.changed else fields
    old = "<br>".join(_field(name, was, differs) for name, was, _, differs in shown if was)
    new = "<br>".join(_field(name, now, differs) for name, _, now, differs in shown if now)
    if sample.kind == "delete":
        new = text.DELETED
    return f"| {KINDS[sample.kind]} | {_code(text.key(sample))} | {old} | {new} |"


def _field(name: str, value: str, differs: bool) -> str:
    shown = f"{_plain(name)}: {_code(value)}" if name else _code(value)
    return f"<b>{shown}</b>" if differs else shown


def _code(value: str) -> str:
    return f"<code>{_plain(value)}</code>"


def _plain(value: str) -> str:
    """Text without Markdown and HTML."""
    escaped = html.escape(value, quote=False).replace("\r", " ").replace("\n", " ")
    return "".join(f"&#{ord(c)};" if c in "|`*_[]~\\#@!" else c for c in escaped)
