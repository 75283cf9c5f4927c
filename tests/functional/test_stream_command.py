"""`upsert-kafka stream`: runs the continuous models until it is stopped, and what other commands see meanwhile."""

from __future__ import annotations

import json
import signal
import socket
import urllib.request
from collections.abc import Callable

import pytest

from tests.dbt_project import Project
from tests.functional.stream_process import FILES, StreamProcess, per_region, send
from tests.services import end_offsets


def test_stream_publishes_until_sigterm_while_other_commands_work(
    dbt_project: Callable[..., Project], broker: str, topic_name: str
) -> None:
    project = dbt_project(FILES)
    views = ("--vars", json.dumps({"views": topic_name}))
    events = [(user, f"region {user % 4}") for user in range(200)]
    send(broker, topic_name, events)
    selected = ("--select", "per_region+", "--target", "dev")
    with StreamProcess(project, topic_name, *selected, "--metrics-port", "0", "--report-interval", "1") as stream:
        stream.wait_for(broker, events)
        events += [(1000, "region 0"), (0, "region 0"), (7, "new")]
        send(broker, topic_name, events[-3:])
        stream.wait_for(broker, events)

        stream.wait_for_line(lambda line: line["events"] == 203)
        health = json.load(urllib.request.urlopen(stream.url("/health")))
        assert health == {"status": "ok"}
        metrics = urllib.request.urlopen(stream.url("/metrics")).read().decode()
        labels = f'{{model="per_region",topic="{topic_name}_per_region"}}'
        assert f"upsert_kafka_stream_up{labels} 1.0" in metrics
        assert f"upsert_kafka_stream_events_total{labels} 203.0" in metrics

        # `ref()` reads the topic of the running stream, and a run of the model is refused, before anything is written.
        project.succeed("test", *views)
        end = end_offsets(broker, f"{topic_name}_per_region")
        for arguments in (("run",), ("run", "--full-refresh")):
            refused = project.run(*arguments, "--select", "per_region", *views).message("per_region")
            assert f"published by a running stream (process {stream.process.pid} on {socket.gethostname()}, started " in refused
        send(broker, topic_name, [(8, "new")])
        stream.wait_for(broker, [*events, (8, "new")])
        stream.wait_for_line(lambda line: line["events"] == 204 and line["lag_records"] == 0)
        assert sum(end_offsets(broker, f"{topic_name}_per_region").values()) - sum(end.values()) == 2  # a record and its marker

        stream.process.send_signal(signal.SIGTERM)
        assert stream.process.wait(60) == 0, stream.output()
    lines = stream.lines()
    assert lines[-1]["status"] == "ended" and lines[-1]["events"] == 204 and lines[-1]["lag_records"] == 0
    # The lease was released: a run is one available-now pass.
    send(broker, topic_name, [(9, "new")])
    assert project.succeed("run", "--select", "per_region", *views).response("per_region")["events"] == 1
    assert per_region(broker, topic_name)["new"] == {"region": "new", "pv": 3, "uv": 3}


@pytest.mark.nightly
def test_ctrl_c_of_a_terminal_ends_the_stream_between_batches(
    dbt_project: Callable[..., Project], broker: str, topic_name: str
) -> None:
    project, events = dbt_project(FILES), [(user, f"region {user % 4}") for user in range(50)]
    send(broker, topic_name, events)
    with StreamProcess(project, topic_name, own_group=True) as stream:
        stream.wait_for(broker, events)
        events += [(user, "late") for user in range(20)]
        send(broker, topic_name, events[50:])
        stream.interrupt()
        assert stream.process.wait(60) == 0, stream.output()
        assert "Traceback" not in stream.output()
    last = stream.lines()[-1]
    assert last["status"] == "ended" and last["error"] is None
    # The lease was released, and the rest is read once.
    rest = project.succeed("run", "--select", "per_region", "--vars", json.dumps({"views": topic_name}))
    assert last["events"] + rest.response("per_region")["events"] == len(events)
    assert per_region(broker, topic_name)["late"]["pv"] == 20
