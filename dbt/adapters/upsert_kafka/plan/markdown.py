"""plan.md: the plan as GitHub's Markdown, for the comment of a pull request.

Everything from the data or the project is in code spans. There GitHub makes no links of addresses, @names and #numbers, which
it does even if a character of them is written as an entity.
"""

from __future__ import annotations

import html
import re
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
    lines: list[str] = []
    length, is_open = 0, False
    for line in rendered.split("\n"):
        length += len(line.encode()) + 1
        if length > limit - 200:
            break
        lines.append(line)
        is_open = line.startswith("<details") or (is_open and line != "</details>")
    return "\n".join(
        [*lines, *(["", "</details>"] if is_open else []), "", "The rest does not fit into a comment: see plan.html.", ""]
    )


def _lines(plan: Plan) -> Iterator[str]:
    yield f"## {text.title(plan, _code)}"
    yield ""
    yield text.headline(plan, _code)
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
    yield f"<sub>{_code(made)}</sub>"


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
    cells = [f"{ICONS[model.status]} {model.status}", _cell(model.name), _cell(model.topic) if model.topic else "", *of_counts]
    return f"| {' | '.join(cells)} |"


def _details(model: ModelPlan) -> Iterator[str]:
    lines = list(_content(model))
    if not lines:
        return
    is_open = " open" if model.refusals or model.error else ""
    name = html.escape(text.visible(model.name))
    yield ""
    yield f"<details{is_open}><summary>{ICONS[model.status]} <code>{name}</code>: {model.status}</summary>"
    yield ""
    yield from lines
    yield ""
    yield "</details>"


def _content(model: ModelPlan) -> Iterator[str]:
    for reason in model.refusals:
        yield f"- **Refused:** {_code(reason)}"
    for mark in text.marks(model):
        yield f"- {_code(mark)}"
    if model.creates is not None and model.topic:
        settings = ", ".join(f"{name}={value}" for name, value in model.creates.items())
        yield f"- Creates topic {_code(model.topic)}{f' with {_code(settings)}' if settings else ''}"
    for heading, columns, meaning in text.column_changes(model):
        yield f"- **{heading}:** {_code(columns)} ({meaning})"
    for note in model.notes:
        yield f"- {_code(note)}"
    for change in model.drift:
        differs = f"is {_code(change.now)}, the model asks for {_code(change.wanted)}"
        yield f"- Topic setting {_code(change.setting)} {differs}; this {_code(text.drift(model, change))}"
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
    if sample.kind == "delete" and sample.new is None:
        new = text.DELETED
    if first := text.first(sample):
        new = f"first {_cell(first)}<br>then {new}"
    return f"| {KINDS[sample.kind]} | {_cell(text.key(sample))} | {old} | {new} |"


def _field(name: str, value: str, differs: bool) -> str:
    shown = _cell(f"{name}: {value}" if name else value)
    return f"<b>{shown}</b>" if differs else shown


def _cell(value: str) -> str:
    """A code span in a table, whose columns are split before anything else."""
    return _code(value).replace("|", "\\|")


def _code(value: str) -> str:
    """A code span."""
    shown = text.visible(value)
    fence = "`" * (max((len(found) for found in re.findall("`+", shown)), default=0) + 1)
    pad = " " if not shown or shown[0] in "` " or shown[-1] in "` " else ""
    return f"{fence}{pad}{shown}{pad}{fence}"
