"""Prometheus metrics and `/health` over HTTP, for `--metrics-port`. Reads the lines of `report` when it is asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from dbt.adapters.upsert_kafka.continuous.report import Line

COUNTERS = {
    "events": "Events that were read from the sources.",
    "written": "Messages with a value.",
    "deleted": "Tombstones.",
    "repeated": "Batches that were in the topic already and were only computed again.",
    "restarts": "Starts after a failure.",
}
GAUGES = {
    "batch_seconds": "Duration of the last batch.",
    "lag_records": "Records of the sources that are not published yet.",
    "lag_seconds": "For how long the first of them has been there.",
}
Lines = Callable[[], Sequence[Line]]


class Collector:
    """The metrics of all streams, made from their lines."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines

    def collect(self) -> Iterator[Any]:
        lines, labels = self._lines(), ("model", "topic")
        up = GaugeMetricFamily("upsert_kafka_stream_up", "Whether the stream runs.", labels=labels)
        for line in lines:
            up.add_metric((line.model, line.topic), float(line.status == "running"))
        yield up
        for name, text in {**COUNTERS, **GAUGES}.items():
            family: Any = CounterMetricFamily if name in COUNTERS else GaugeMetricFamily
            metric = family(f"upsert_kafka_stream_{name}", text, labels=labels)
            for line in lines:
                value = getattr(line, name)
                if value is not None:
                    metric.add_metric((line.model, line.topic), value)
            yield metric


class MetricsServer:
    """Serves `/metrics` and `/health` until it is closed.

    Args:
        port: 0 for any free one.
        problems: why the streams are not healthy, by model.
    """

    def __init__(self, port: int, lines: Lines, problems: Callable[[], dict[str, str]]) -> None:
        registry = CollectorRegistry()
        registry.register(Collector(lines))

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                if path == "/metrics":
                    self._answer(200, CONTENT_TYPE_LATEST, generate_latest(registry))
                elif path == "/health":
                    found = problems()
                    body = {"status": "failing" if found else "ok", **({"problems": found} if found else {})}
                    self._answer(503 if found else 200, "application/json", json.dumps(body).encode())
                else:
                    self._answer(404, "text/plain", b"/metrics or /health\n")

            def _answer(self, code: int, kind: str, body: bytes) -> None:
                self.send_response(code)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Requests are not logged."""

        self._server = ThreadingHTTPServer(("", port), Handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
