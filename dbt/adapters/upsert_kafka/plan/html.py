"""plan.html: the plan as one static page without scripts and without network access, in light and dark colours.

Everything from the data is escaped, also characters that can't be seen, and the page's policy forbids to load anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from dbt.adapters.upsert_kafka.plan import text
from dbt.adapters.upsert_kafka.plan.document import KINDS, ModelPlan, Plan
from dbt.adapters.upsert_kafka.publish.preview import Sample

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
STYLE = """
:root { color-scheme: light dark; --back: #f6f7f9; --card: #fff; --text: #1c2127; --soft: #5c6670; --line: #d9dee4;
  --new: #e3f4e7; --new-text: #14622b; --old: #fdeaea; --old-text: #98191f; --mark: #fff1c2; --accent: #1f5fbf; }
@media (prefers-color-scheme: dark) { :root { --back: #14171b; --card: #1d2126; --text: #e6e9ed; --soft: #9aa4ae; --line: #353c44;
  --new: #153222; --new-text: #8fdca6; --old: #3a1b1d; --old-text: #ffa5a5; --mark: #4d3f12; --accent: #7fb0ff; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--text); font: 15px/1.5 system-ui, "Segoe UI", Roboto, sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 24px 16px 64px; }
h1 { font-size: 24px; margin: 0 0 4px; } h2 { font-size: 18px; margin: 0; overflow-wrap: anywhere; }
h3 { font-size: 14px; margin: 18px 0 6px; color: var(--soft); text-transform: uppercase; letter-spacing: .04em; }
p { margin: 4px 0; } .soft { color: var(--soft); } .headline { font-size: 17px; }
code { font: 13px/1.45 ui-monospace, "SF Mono", Menlo, Consolas, monospace; overflow-wrap: anywhere; }
article { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 16px; margin: 16px 0; }
header { display: flex; flex-wrap: wrap; gap: 4px 12px; align-items: baseline; }
.status { border-radius: 10px; padding: 1px 10px; font-size: 13px; border: 1px solid var(--line); white-space: nowrap; }
.refused .status, .failed .status { background: var(--old); color: var(--old-text); border-color: currentColor; }
.changes .status { background: var(--new); color: var(--new-text); border-color: currentColor; }
.refusal { background: var(--old); color: var(--old-text); border-left: 4px solid currentColor; padding: 8px 12px; margin: 12px 0;
  overflow-wrap: anywhere; }
.note { background: var(--mark); border-left: 4px solid var(--soft); padding: 8px 12px; margin: 12px 0; overflow-wrap: anywhere; }
.counts { display: flex; flex-wrap: wrap; gap: 8px 24px; margin: 12px 0 0; padding: 0; list-style: none; }
.counts b { display: block; font-size: 20px; line-height: 1.2; font-variant-numeric: tabular-nums; }
ul.plain { margin: 6px 0; padding-left: 20px; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; } th, td { text-align: left; padding: 4px 10px; vertical-align: top; }
th { color: var(--soft); font-weight: 500; font-size: 13px; } tr + tr td { border-top: 1px solid var(--line); }
.overview td:nth-child(n+3), .overview th:nth-child(n+3) { text-align: right; font-variant-numeric: tabular-nums; }
.overview a { color: var(--accent); }
.sample { border: 1px solid var(--line); border-radius: 6px; margin: 8px 0; overflow: hidden; }
.sample > div { padding: 6px 10px; background: var(--back); border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }
.sample .kind { display: inline-block; min-width: 84px; font-weight: 600; }
.sample caption { text-align: left; padding: 6px 10px; color: var(--soft); overflow-wrap: anywhere; }
.sample table { table-layout: fixed; } .sample th:first-child { width: 22%; } .sample td { overflow-wrap: anywhere; }
.differs .was { background: var(--old); color: var(--old-text); } .differs .is { background: var(--new); color: var(--new-text); }
.differs td:first-child { font-weight: 600; } .differs td:first-child::after { content: " ≠"; }
.insert .is, .append .is { background: var(--new); color: var(--new-text); }
.delete .was { background: var(--old); color: var(--old-text); }
@media (max-width: 640px) {
  main { padding: 16px 10px 40px; } article { padding: 12px; } .counts { gap: 8px 16px; }
  .overview thead, .sample thead { display: none; }
  .overview tr { display: block; padding: 8px 0; border-top: 1px solid var(--line); }
  .overview td { display: flex; justify-content: space-between; gap: 12px; border: 0 !important; padding: 2px 4px; }
  .overview td::before, .sample td[data-name]::before { content: attr(data-name); color: var(--soft); font-size: 13px; }
  .sample td[data-name]::before { margin-right: 8px; }
  .sample table, .sample tbody, .sample tr, .sample td { display: block; width: 100%; }
  .sample tr { padding: 4px 0; } .sample tr + tr { border-top: 1px solid var(--line); }
  .sample tr + tr td { border: 0; } .sample td { padding: 2px 10px; } .sample td:empty, .sample td.none { display: none; }
}
"""


def render(plan: Plan) -> str:
    """The whole page."""
    return "".join(_page(plan))


def _page(plan: Plan) -> Iterator[str]:
    title = _escaped(text.title(plan))
    yield "<!doctype html>\n"
    yield '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{_escaped(POLICY)}">'
    yield f"<title>{title}</title><style>{STYLE}</style></head>\n<body><main>\n"
    yield f'<h1>{title}</h1>\n<p class="headline">{_escaped(text.headline(plan))}</p>\n'
    yield (
        f'<p class="soft">Made at {_escaped(plan.created_at)}, environment {_escaped(plan.environment)}, '
        f"dbt-upsert-kafka {_escaped(plan.adapter_version)}</p>\n"
    )
    if len(plan.models) > 1:
        yield from _overview(plan)
    for model in plan.models:
        yield from _model(model)
    yield "</main></body></html>\n"


def _overview(plan: Plan) -> Iterator[str]:
    names = ("new", "changed", "deleted", "unchanged", "messages", "size")
    yield '<article><table class="overview"><thead><tr><th>model</th><th>status</th>'
    yield "".join(f"<th>{name}</th>" for name in names) + "</tr></thead><tbody>\n"
    for model in plan.models:
        counts = model.counts
        numbers = [
            counts.get("insert", 0) + counts.get("append", 0),
            counts.get("update", 0) + counts.get("republish", 0),
            counts.get("delete", 0),
            counts.get("unchanged", 0),
            model.messages,
        ]
        cells = [*(text.number(number) for number in numbers), text.size(model.bytes)] if counts else [""] * len(names)
        yield f'<tr><td data-name="model"><a href="#{_escaped(model.unique_id)}"><code>{_escaped(model.name)}</code></a></td>'
        yield f'<td data-name="status">{model.status}</td>'
        yield "".join(f'<td data-name="{name}">{cell}</td>' for name, cell in zip(names, cells, strict=True)) + "</tr>\n"
    yield "</tbody></table></article>\n"


def _model(model: ModelPlan) -> Iterator[str]:
    yield f'<article id="{_escaped(model.unique_id)}" class="{model.status.split()[0]}"><header><h2>{_escaped(model.name)}</h2>'
    yield f'<span class="status">{model.status}</span><span class="soft">{_escaped(model.materialization)}</span></header>\n'
    if model.topic:
        yield f"<p>Topic <code>{_escaped(model.topic)}</code>"
        yield f", owner {_escaped(model.owner)}</p>\n" if model.owner else "</p>\n"
    for reason in model.refusals:
        yield f'<p class="refusal"><b>Refused:</b> {_escaped(reason)}</p>\n'
    for mark in text.marks(model):
        yield f'<p class="note">{_escaped(mark)}</p>\n'
    if model.counts:
        yield '<ul class="counts">'
        for word, number in text.counts(model):
            yield f"<li><b>{text.number(number)}</b>{_escaped(word)}</li>"
        yield f"<li><b>{text.number(model.messages)}</b>messages</li><li><b>{text.size(model.bytes)}</b>to send</li></ul>\n"
    yield from _topic_changes(model)
    if model.samples:
        yield "<h3>Sample changes</h3>\n"
        for sample in model.samples:
            yield from _sample(sample)
    yield "</article>\n"


def _topic_changes(model: ModelPlan) -> Iterator[str]:
    if model.creates is not None and model.topic:
        settings = _escaped(", ".join(f"{name}={value}" for name, value in model.creates.items()))
        yield f"<h3>New topic</h3><p>A run creates the topic{f' with <code>{settings}</code>' if settings else ''}.</p>\n"
    changes = list(text.column_changes(model))
    if changes:
        yield '<h3>Changes for consumers</h3><ul class="plain">'
        yield "".join(
            f"<li><b>{heading}:</b> <code>{_escaped(found)}</code> – {meaning}</li>" for heading, found, meaning in changes
        )
        yield "</ul>\n"
    if model.notes:
        yield "<h3>Notes</h3>" + "".join(f'<p class="note">{_escaped(note)}</p>' for note in model.notes) + "\n"
    if model.drift:
        yield '<h3>Topic settings</h3><ul class="plain">'
        for change in model.drift:
            yield f"<li><code>{_escaped(change.setting)}</code> is <code>{_escaped(change.now)}</code>, the model asks for "
            yield f"<code>{_escaped(change.wanted)}</code>; this {_escaped(text.drift(model, change))}</li>"
        yield "</ul>\n"


def _sample(sample: Sample) -> Iterator[str]:
    yield f'<section class="sample {sample.kind}"><div><span class="kind">{KINDS[sample.kind]}</span> '
    yield f"key <code>{_escaped(text.key(sample))}</code></div><table>"
    if first := text.first(sample):
        yield f"<caption>Two messages: first <code>{_escaped(first)}</code>, then the new one.</caption>"
    yield "<thead><tr><th></th><th>old</th><th>new</th></tr></thead><tbody>"
    for place, (name, old, new, differs) in enumerate(text.fields(sample)):
        is_gone = sample.kind == "delete" and sample.new is None
        after = new if not is_gone else "" if place else text.DELETED
        yield f'<tr class="differs"><td>{_escaped(name)}</td>' if differs else f"<tr><td>{_escaped(name)}</td>"
        yield _cell("was", "old", old) + _cell("is", "new", after) + "</tr>"
    yield "</tbody></table></section>\n"


def _cell(kind: str, name: str, value: str) -> str:
    if not value:
        return f'<td class="none {kind}"></td>'
    return f'<td class="{kind}" data-name="{name}"><code>{_escaped(value)}</code></td>'


def _escaped(value: str) -> str:
    return escape(text.visible(value))
