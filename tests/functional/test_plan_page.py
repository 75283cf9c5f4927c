"""plan.html in a real browser: every kind of change is on the page. Skipped if there is no Chromium."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from html import unescape
from pathlib import Path

import pytest

from tests.dbt_project import Project

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars",
)  # fmt: skip
WIDTHS = (1280, 400)
BEFORE = (
    """select * from values (1, 'Ann', 'Bern', 3), (2, 'Bob', 'Basel', 7), (3, 'Cem', 'Genf', 1) as t(id, name, city, orders)"""
)
AFTER = """select id, name, city as town, cast(orders as bigint) as orders, false as is_new
from values (1, 'Ann', 'Bern', 3), (2, 'Bob', 'Zug', 8), (4, 'Dee', 'Chur', 0) as t(id, name, city, orders)"""
CUSTOMERS = "{{ config(materialized='upsert_kafka', unique_key='id', format='avro') }} "
STOCK = "{{ config(materialized='upsert_kafka', unique_key='sku', max_deletes=1, partitions=2) }} "


def browser(page: Path, folder: Path, *arguments: str) -> str:
    assert CHROMIUM is not None
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={folder / 'chromium'}", *arguments, page.as_uri()]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (Debian: apt-get install chromium)")
def test_page_shows_every_change(dbt_project: Callable[..., Project], tmp_path: Path) -> None:
    project = dbt_project(
        {
            "models/customers.sql": CUSTOMERS + BEFORE,
            "models/stock.sql": STOCK + "select 'sku-' || id as sku, 10 * id as pieces from range(1, 6)",
        }
    )
    with project.one_process():
        project.succeed("run")
        project.write(
            {
                "models/customers.sql": CUSTOMERS + AFTER,
                "models/stock.sql": STOCK.replace("partitions=2", "partitions=4, on_configuration_change='apply'")
                + "select 'sku-' || id as sku, 10 * id as pieces from range(1, 3)",
            }
        )
        done = project.run("plan", "-o", str(project.folder / "out"), program="upsert-kafka")
    assert done.exit_code == 1, done.output
    page = project.folder / "out/plan.html"
    dom = browser(page, tmp_path, "--dump-dom")
    seen = " ".join(unescape(re.sub(r"<[^>]+>", " ", dom.split("</style>")[1])).split())
    for text in (
        "Refused: stock. Without them, a run would send 4 messages to 1 topic.",
        "Refused: 3 of the topic's 5 keys would be deleted",
        "Renamed columns: city (now town) – consumers find no value under the old names",
        "Columns of another type: orders (int to bigint)",
        "New columns: is_new",
        "partitions is 2 , the model asks for 4 ; this is changed by a run",
        "look for old keys in another partition",
    ):
        assert text in seen, seen
    assert "<script" not in dom and "default-src 'none'" in dom, "readable without JavaScript, and loads nothing"
    for kind, key in (("new", 4), ("changed", 2), ("deleted", 3)):
        assert f'{kind} key {{"id":{key}}}' in seen, seen
    # Avro is decoded with the columns of its run, so that the old value has the old names.
    assert re.search(
        r'class="differs"><td>city</td><td class="was"[^>]*><code>Basel</code></td><td class="none is"></td>', dom
    ), dom
    assert re.search(r'class="differs"><td>town</td><td class="none was"></td><td class="is"[^>]*><code>Zug</code>', dom), dom
    folder = Path(os.environ.get("UPSERT_KAFKA_SCREENSHOTS", tmp_path))
    for width in WIDTHS:
        picture = folder / f"plan_{width}.png"
        browser(page, tmp_path, f"--screenshot={picture}", f"--window-size={width},{1900 if width > 640 else 3300}")
        assert picture.stat().st_size > 20_000
