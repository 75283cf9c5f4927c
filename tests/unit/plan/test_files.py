"""plan.json, plan.md and plan.html: complete, escaped, small."""

from __future__ import annotations

import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from dbt.adapters.upsert_kafka.errors import UpsertKafkaError
from dbt.adapters.upsert_kafka.formats.exact_json import Number
from dbt.adapters.upsert_kafka.kafka_client.topic_drift import Drift
from dbt.adapters.upsert_kafka.plan import compute, document, files, html, markdown
from dbt.adapters.upsert_kafka.plan.document import Invocation, ModelPlan, Plan
from dbt.adapters.upsert_kafka.publish.announce import Differences
from dbt.adapters.upsert_kafka.publish.fingerprint import Fingerprint, Messages
from dbt.adapters.upsert_kafka.publish.preview import Preview, Sample

HOSTILE = "<script>alert(1)</script>|`*[x](http://x)*`@all\n# heading"
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
    plan = replace(PLAN, models=(USERS, refused()))
    files.write(plan, tmp_path)
    assert document.load(tmp_path / "plan.json") == plan
    written = json.loads((tmp_path / "plan.json").read_text())
    assert (written["version"], written["summary"]["refused"], written["summary"]["messages"]) == (1, 1, 3)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 1}', '{"version": 2}'])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(UpsertKafkaError, match=r"is not a|is a plan of version 2"):
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
    assert "A run would send 3 messages to 1 topic. Not planned: on&#95;top." in page
    assert "- can't be planned yet" in page and "today's users" not in page
    assert json.loads(PLAN.to_json())["complete"] is True


def test_numbers_keep_their_text() -> None:
    sample = Sample("update", {"id": 1}, {"price": Number("10")}, {"price": Number("1E+1")}, ("price",))
    plan = replace(PLAN, models=(replace(USERS, samples=(sample,)),))
    assert '"price": 1E+1' in plan.to_json() and "1E+1" in markdown.render(plan) and "1E+1" in html.render(plan)


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]


def test_values_are_escaped() -> None:
    plan = replace(PLAN, models=(replace(USERS, name=HOSTILE, topic=HOSTILE, notes=(HOSTILE,)), refused(HOSTILE)))
    tags = _Tags()
    tags.feed(html.render(plan))
    assert "script" not in tags.found
    assert all(link.startswith("#") for link in tags.links), "the page loads nothing"
    rendered = markdown.render(plan)
    assert "<script" not in rendered and "\n# heading" not in rendered and "](http" not in rendered and "@all" not in rendered


def test_page_shows_every_change() -> None:
    page = html.render(replace(PLAN, models=(USERS, refused())))
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


def test_secret_variables_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DBT_ENV_SECRET_TOKEN", "hunter-2")
    files.write(replace(PLAN, models=(replace(USERS, notes=("the token is hunter-2",)),)), tmp_path)
    assert not any("hunter-2" in path.read_text() for path in tmp_path.iterdir())
