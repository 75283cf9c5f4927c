"""Two dbt runs of a model from two folders, in two processes: the one that commits later has compared with the other's rows."""

from __future__ import annotations

import json
from pathlib import Path

from tests.dbt_project import Project
from tests.faults.pause import Pause
from tests.services import Cluster, read_topic

MODEL = """
{{ config(materialized='upsert_kafka', unique_key='id', topic=var('topic'), sink_delivery_guarantee='exactly-once') }}
select id, if(id < 10, '{{ var("first") }}', '{{ var("second") }}') as name from range(20)
"""


def test_run_that_committed_meanwhile_is_not_overwritten(fault_cluster: Cluster, topic_name: str, tmp_path: Path) -> None:
    servers = fault_cluster.bootstrap_servers
    a, b = (Project(tmp_path / name, servers).write({"models/users.sql": MODEL}) for name in ("a", "b"))
    a.succeed("run", "--vars", variables(topic_name, "old", "old"))
    # dbt has compared, and waits before it opens its transaction.
    pause = Pause(tmp_path / "pause", "deliver")
    with pause.applied():
        process = b.start("run", "--vars", variables(topic_name, "old", "of b"))
    try:
        pause.wait()
        a.succeed("run", "--vars", variables(topic_name, "of a", "old"))
        pause.go_on()
        output, _ = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 0, output
    # The first ten were equal to b's rows when b compared for the first time, and not when it committed.
    latest = {record.key: json.loads(record.value)["name"] for record in read_topic(servers, topic_name) if record.value}
    assert sorted(latest.values()) == ["of b"] * 10 + ["old"] * 10
    assert ": 0 new, 20 changed, 0 deleted, 0 unchanged in" in output


def variables(topic: str, first: str, second: str) -> str:
    return json.dumps({"topic": topic, "first": first, "second": second})
