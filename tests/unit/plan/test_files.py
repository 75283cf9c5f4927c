"""plan.json, plan.md and plan.html: complete, escaped, small."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from html import escape, unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from dbt.adapters.upsert_kafka.errors import UpsertKafkaError
from dbt.adapters.upsert_kafka.formats.exact_json import Number
from dbt.adapters.upsert_kafka.kafka_client.topic_drift import Drift
from dbt.adapters.upsert_kafka.plan import commands, compute, document, files, html, markdown
from dbt.adapters.upsert_kafka.plan.document import Invocation, ModelPlan, Plan
from dbt.adapters.upsert_kafka.publish.announce import Differences
from dbt.adapters.upsert_kafka.publish.fingerprint import Fingerprint, Messages
from dbt.adapters.upsert_kafka.publish.preview import Preview, Sample

HOSTILE = "</details></code><script>alert(1)</script>|\\|``*[x](http://x)*` @all #1 www.x.org a@x.org\n# heading\u2028- \u202egnp"
VISIBLE = HOSTILE.replace("\n", "\\n").replace("\u2028", "\\u2028").replace("\u202e", "\\u202e")
FINGERPRINT = Fingerprint("c", "t", {"0": 3}, {}, {"unique_key": '["id"]'}, "s", "l", 7, Messages(3, 65, "3:1:2"))
PREVIEW = Preview(
    model="users",
    topic="shop.users",
    owner="model users of project shop",
    environment="dev",
    fingerprint=FINGERPRINT,
    counts={"insert": 1, "update": 1, "delete": 1, "unchanged": 1},
    live_keys=3,
    columns=Differences(added=("mail",), retyped=("age (int to bigint)",)),
    drift=(Drift("partitions", "2", "4", "", "keys stay"), Drift("retention.ms", "5", "3", "records would go")),
    on_drift="apply",
    samples=(
        Sample("insert", {"id": 4}, None, {"id": 4, "name": HOSTILE}),
        Sample("update", {"id": 1}, {"id": 1, "name": "ann"}, {"id": 1, "name": "an"}, ("name",)),
        Sample("delete", {"id": 2}, {"id": 2, "name": "bob"}, None),
    ),
)
USERS = ModelPlan.of("model.shop.users", "upsert_kafka", PREVIEW)
PLAN = Plan("shop", "dev", "dev", "2026-11-18 08:00:00Z", "1.0", Invocation(("users",), vars="{a: 1}"), (USERS,))


def refused(reason: str = "3 keys would be deleted") -> ModelPlan:
    return ModelPlan.of("model.shop.orders", "upsert_kafka", replace(PREVIEW, model="orders", refusals=(reason,)))


def test_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    plan = replace(PLAN, models=(replace(USERS, readers=("User:ann",)), refused()))
    files.write(plan, tmp_path)
    assert document.load(tmp_path / "plan.json") == plan
    written = json.loads((tmp_path / "plan.json").read_text())
    assert (written["version"], written["summary"]["refused"], written["summary"]["messages"]) == (1, 1, 3)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 1}', '{"version": 2}', "[" * 100_000])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(UpsertKafkaError, match=r"is not a|is a plan of version 2"):
        document.load(path)


@pytest.mark.parametrize(
    "changed",
    [
        {"models": ["x"]},
        {"models": [None]},
        {"models": 3},
        {"models": [{**asdict(USERS), "messages": "3"}]},
        {"models": [{**asdict(USERS), "status": "approved"}]},
        {"models": [{**asdict(USERS), "reads": []}]},
        {"models": [{**asdict(USERS), "fingerprint": "x"}]},
        {"models": [{**asdict(USERS), "fingerprint": {"end": {"0": "3"}}}]},
        {"models": [{**asdict(USERS), "fingerprint": {"messages": []}}]},
        {"models": [{**asdict(USERS), "samples": [{"kind": 1}]}]},
        {"models": [{**asdict(USERS), "drift": ["x"]}]},
        {"models": [{**asdict(USERS), "columns": {"other": []}}]},
        {"invocation": []},
        {"invocation": {"select": [1], "exclude": []}},
        {"target": ["--full-refresh"]},
    ],
)
def test_plan_with_wrong_types_is_refused(tmp_path: Path, changed: dict[str, object]) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(json.loads(PLAN.to_json()) | changed))
    with pytest.raises(UpsertKafkaError, match=r"plan\.json' is not a complete plan \(.*\)\. Run upsert-kafka plan again\.$"):
        document.load(path)


def test_refused_plan_is_not_applied() -> None:
    with pytest.raises(UpsertKafkaError, match=r"1 model would not be published: orders \(3 keys would be deleted\)"):
        compute.check_applicable(replace(PLAN, models=(USERS, refused())))
    compute.check_applicable(PLAN)


def test_model_that_is_not_planned_yet_is_shown_and_not_applied() -> None:
    later = ModelPlan(
        "m", "on_top", "upsert_kafka", document.NOT_PLANNED, "can't be planned yet", upstream=("users",), waits=True
    )
    plan = replace(PLAN, models=(USERS, later))
    compute.check_applicable(plan)
    assert (plan.applied, plan.waiting, plan.is_refused) == ([USERS], [later], False)
    assert json.loads(plan.to_json())["complete"] is False
    page = markdown.render(plan)
    assert "A run would send 3 messages to 1 topic. Not planned: `on_top`." in page
    assert "- `can't be planned yet`" in page and "today's users" not in page
    assert json.loads(PLAN.to_json())["complete"] is True


def test_numbers_keep_their_text() -> None:
    sample = Sample("update", {"id": 1}, {"price": Number("10")}, {"price": Number("1E+1")}, ("price",))
    plan = replace(PLAN, models=(replace(USERS, samples=(sample,)),))
    assert '"price": 1E+1' in plan.to_json() and "1E+1" in markdown.render(plan) and "1E+1" in html.render(plan)


def test_both_messages_of_an_update_and_the_event_of_a_delete_are_shown() -> None:
    update = Sample("update", {"id": 1}, {"after": 1}, {"after": 2}, ("after",), {"op": "d"})
    delete = Sample("delete", {"id": 2}, {"after": 1}, {"op": "x"})
    plan = replace(PLAN, models=(replace(USERS, samples=(update, delete)),))
    page, comment = _Page(html.render(plan)).text, markdown.render(plan)
    assert 'Two messages: first {"op":"d"}, then the new one.' in page and 'first `{"op":"d"}`<br>then' in comment
    assert "`op: x`" in comment
    assert "(deleted)" not in page + comment


class _Page(HTMLParser):
    """The tags and links of a page, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]

    def handle_data(self, data: str) -> None:
        self.text += data


def hostile() -> Plan:
    """Hostile text wherever a plan has text of the data or of the project."""
    sample = Sample("update", {"id": HOSTILE}, {HOSTILE: "a"}, {HOSTILE: HOSTILE}, (HOSTILE,))
    model = replace(
        USERS,
        name=HOSTILE,
        topic=HOSTILE,
        owner=HOSTILE,
        unique_id=HOSTILE,
        creates={HOSTILE: HOSTILE},
        notes=(HOSTILE,),
        upstream=(HOSTILE,),
        columns=Differences(*[(HOSTILE,)] * 5),
        drift=(Drift(HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE),),
        samples=(sample, Sample("insert", HOSTILE, None, HOSTILE), Sample("delete", HOSTILE, HOSTILE, None)),
    )
    failed = ModelPlan("m", HOSTILE, "kafka", "failed", HOSTILE)
    return Plan(HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE, Invocation(), (model, failed, replace(model, refusals=(HOSTILE,))))


def test_page_escapes_everything() -> None:
    page = _Page(html.render(hostile()))
    usual = _Page(html.render(replace(PLAN, models=(USERS, refused()))))
    assert set(page.tags) == set(usual.tags), "the data adds no tags"
    assert all(link.startswith("#") for link in page.links), "the page loads nothing"
    assert page.text.count(VISIBLE) > 30
    assert not {"\u2028", "\u202e"} & set(page.text)


def test_comment_has_data_in_code_spans_only() -> None:
    rendered = markdown.render(hostile())
    lines = rendered.split("\n")
    assert lines[:-1] == rendered.splitlines(), "no other character ends a line"
    without_code = []
    for line in lines:
        # Cells of a table are split at pipes without a backslash, then their backslashes are removed.
        cells = re.split(r"(?<!\\)\|", line) if line.startswith("| ") else [line]
        assert len(cells) in (1, 6, 11), line
        texts = [cell.replace("\\|", "|") for cell in cells] if len(cells) > 1 else cells
        without_code += [re.sub(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)|<summary>.*</summary>", "", one) for one in texts]
    others = "\n".join(without_code)
    for text in ("script", "@", "http", "www", "alert", "</code>", "#1", "\u2028", "\u202e", "gnp"):
        assert text not in others, others
    assert rendered.count(VISIBLE) > 10
    assert rendered.count("<details") == rendered.count("\n</details>") == 3
    summaries = [line for line in lines if "<summary>" in line]
    assert all(f"<code>{escape(VISIBLE)}</code>" in line for line in summaries)


@pytest.mark.parametrize("limit", range(900, 8000, 700))
def test_cut_comment_closes_what_it_opened(limit: int) -> None:
    plan = hostile()
    cut = markdown.cut(markdown.render(plan), limit)
    assert len(cut.encode()) <= limit
    assert cut.count("\n<details") == cut.count("\n</details>")
    assert cut.endswith("see plan.html.\n")


def test_page_shows_every_change() -> None:
    page = html.render(replace(PLAN, models=(replace(USERS, readers=("User:ann", "User:bob")), refused())))
    for expected in (
        "Refused: orders. Without them, a run would send 3 messages to 1 topic.",
        '<p class="refusal"><b>Refused:</b> 3 keys would be deleted</p>',
        '<section class="sample insert">',
        '<tr class="differs"><td>name</td>',
        "(deleted)",
        "<b>New columns:</b> <code>mail</code>",
        "<b>Columns of another type:</b> <code>age (int to bigint)</code>",
        "is changed by a run (on_configuration_change=&#x27;apply&#x27;): keys stay",
        "is refused, because records would go",
        "A run gives READ on the topic to User:ann, User:bob, and revokes it from all others",
    ):
        assert expected in page


def test_files_stay_small(tmp_path: Path) -> None:
    long = {f"field_{number}": "x" * 300 for number in range(60)}
    samples = tuple(
        Sample(kind, {"id": n}, long, long, tuple(long)) for kind in ("insert", "update", "delete") for n in range(100)
    )
    models = tuple(replace(USERS, unique_id=f"model.shop.m{number}", samples=samples) for number in range(3))
    files.write(replace(PLAN, models=models), tmp_path)
    assert (tmp_path / "plan.json").stat().st_size < 2_000_000
    assert (tmp_path / "plan.html").stat().st_size < 2_000_000
    assert (tmp_path / "plan.md").stat().st_size < 65_536
    assert document.load(tmp_path / "plan.json").models[2].samples, "as many samples as fit"
    many = tuple(replace(USERS, unique_id=f"model.shop.m{number}", samples=()) for number in range(1000))
    files.write(replace(PLAN, models=many), tmp_path)
    assert (tmp_path / "plan.md").read_text().endswith("see plan.html.\n")


@pytest.mark.parametrize("secret", ["hunter-2", "hunter_2*", "a&b<c", 'say "hi"', "back`tick|", "schlüssel"])
def test_secrets_are_removed_before_texts_are_escaped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secret: str) -> None:
    monkeypatch.setenv("DBT_ENV_SECRET_TOKEN", secret)
    sample = Sample("insert", {secret: 4}, None, {"id": 4, "nested": [{"token": f"is {secret}"}]}, (secret,))
    in_json = json.dumps({"token": secret})
    model = replace(USERS, notes=(f"the token is {secret}",), refusals=(f"key {in_json}",), error=secret, samples=(sample,))
    files.write(replace(PLAN, models=(model,), invocation=Invocation(vars=json.dumps({"a": secret}))), tmp_path)
    written = [path.read_text() for path in tmp_path.iterdir()]
    for known in (secret, json.dumps(secret)[1:-1], escape(secret), escape(secret, quote=False)):
        assert not any(known in text for text in written)
    assert all("*****" in unescape(text).replace("\\*", "*") for text in written)
    plan = document.load(tmp_path / "plan.json")
    assert (plan.invocation.vars, plan.invocation.needs_vars) == (None, True)
    assert plan.models[0].fingerprint == FINGERPRINT


@pytest.mark.parametrize(
    ("given", "is_kept"),
    [
        (None, True),
        ("{stage: 2, token_ttl: 3}", False),
        ("{stage: 2}", True),
        ("{db: [{password: x}]}", False),
        ("{api_key: x}", False),
    ],
)
def test_variables_that_seem_to_be_secret_are_not_stored(tmp_path: Path, given: str | None, is_kept: bool) -> None:
    files.write(replace(PLAN, invocation=Invocation(vars=given)), tmp_path)
    read = document.load(tmp_path / "plan.json").invocation
    assert (read.vars, read.needs_vars) == ((given, False) if is_kept else (None, True))
    if is_kept:
        assert commands.with_vars(read, None) == read
        with pytest.raises(UpsertKafkaError, match="applied with its own --vars"):
            commands.with_vars(read, "{other: 1}")
    else:
        assert commands.with_vars(read, given).vars == given
        with pytest.raises(UpsertKafkaError, match="Give apply the same --vars"):
            commands.with_vars(read, None)


def test_secrets_are_not_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("DBT_ENV_SECRET_TOKEN", "hunter_2")
    commands._print(replace(PLAN, models=(refused("key hunter_2\n and \x1b[2J"),)), tmp_path)
    printed = capsys.readouterr().out
    assert "hunter_2" not in printed and "  key ***** and \\x1b[2J\n" in printed


def test_half_of_a_surrogate_pair_is_written(tmp_path: Path) -> None:
    sample = Sample("insert", {"id": 4}, None, {"name": "\ud800"})
    files.write(replace(PLAN, models=(replace(USERS, samples=(sample,)),)), tmp_path)
    assert document.load(tmp_path / "plan.json").models[0].samples == (sample,)
