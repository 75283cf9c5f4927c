"""`--metrics-port`: Prometheus' text, and whether the streams are healthy."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest

from dbt.adapters.upsert_kafka.continuous.metrics import MetricsServer
from dbt.adapters.upsert_kafka.continuous.report import Line

LINE = Line("orders", "shop.orders", "running", 3, 120, 10.0, 0.5, None, None, 40, 2, 0, 1)


def test_metrics_and_health() -> None:
    problems: dict[str, str] = {}
    server = MetricsServer(0, lambda: [LINE], lambda: problems)
    try:
        url = f"http://localhost:{server.port}"
        text = urllib.request.urlopen(f"{url}/metrics").read().decode()
        labels = '{model="orders",topic="shop.orders"}'
        for line in ("up{} 1.0", "events_total{} 120.0", "deleted_total{} 2.0", "restarts_total{} 1.0", "batch_seconds{} 0.5"):
            assert f"upsert_kafka_stream_{line.replace('{}', labels)}\n" in text
        assert f"lag_records{labels}" not in text  # not known yet
        assert json.load(urllib.request.urlopen(f"{url}/health")) == {"status": "ok"}
        problems["orders"] = "pausing: the broker is down"
        with pytest.raises(urllib.error.HTTPError) as failing:
            urllib.request.urlopen(f"{url}/health")
        assert failing.value.code == 503 and "the broker is down" in failing.value.read().decode()
    finally:
        server.close()
