"""Two dbt runs of a model from two folders, in two processes: the one that commits later has compared with the other's rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.dbt_project import Project
from tests.faults.scene import wait_for
from tests.services import Cluster, read_topic

MODEL = """
{{ config(materialized='upsert_kafka', unique_key='id', topic=var('topic'), sink_delivery_guarantee='exactly-once') }}
select id, if(id < 10, '{{ var("first") }}', '{{ var("second") }}') as name from range(20)
"""
PAUSE_BEFORE_DELIVERY = """
import sys, threading, time
from pathlib import Path

def pause_before_delivery():
    name = "dbt.adapters.upsert_kafka.sinks.steps"
    while not hasattr(sys.modules.get(name), "Steps"):
        time.sleep(0.01)
    steps = sys.modules[name].Steps
    deliver = steps.deliver

    def paused(*arguments):
        folder = Path(__file__).parent
        (folder / "compared").touch()
        while not (folder / "deliver").exists():
            time.sleep(0.01)
        return deliver(*arguments)

    steps.deliver = paused

if "dbt.cli.main" in sys.orig_argv:
    threading.Thread(target=pause_before_delivery, daemon=True).start()
"""
"""A sitecustomize.py: dbt has compared, and waits before it opens its transaction until the file `deliver` exists."""


def test_run_that_committed_meanwhile_is_not_overwritten(
    fault_cluster: Cluster, topic_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = fault_cluster.bootstrap_servers
    a, b = (Project(tmp_path / name, servers).write({"models/users.sql": MODEL}) for name in ("a", "b"))
    a.succeed("run", "--vars", variables(topic_name, "old", "old"))
    pause = tmp_path / "pause"
    pause.mkdir()
    (pause / "sitecustomize.py").write_text(PAUSE_BEFORE_DELIVERY)
    with monkeypatch.context() as patched:
        patched.setenv("PYTHONPATH", str(pause))
        process = b.start("run", "--vars", variables(topic_name, "old", "of b"))
    try:
        wait_for((pause / "compared").exists, "the comparison of the second run")
        a.succeed("run", "--vars", variables(topic_name, "of a", "old"))
        (pause / "deliver").touch()
        output, _ = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 0, output
    # The first ten were equal to b's rows when b compared for the first time, and not when it committed.
    latest = {record.key: json.loads(record.value)["name"] for record in read_topic(servers, topic_name) if record.value}
    assert sorted(latest.values()) == ["of b"] * 10 + ["old"] * 10
    assert "+0 ~20 -0 =0" in output


def variables(topic: str, first: str, second: str) -> str:
    return json.dumps({"topic": topic, "first": first, "second": second})
