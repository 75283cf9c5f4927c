"""plan.html in a real browser: every kind of change is on the page, in light and dark, on wide and narrow screens.

Skipped if there is no Chromium. UPSERT_KAFKA_SCREENSHOTS=docs takes the pictures of docs/plan.md.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from tests.dbt_project import Project

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars",
)  # fmt: skip
WIDTHS = (1280, 400)
DARK, LIGHT = 0, 1
"""Chromium's numbers of the color schemes that a user may prefer."""
# The page itself runs no scripts. This one looks at it in a frame.
PROBE = """<!doctype html><style>
  :root {{ color-scheme: light dark }} iframe {{ border: 0; width: {width}px; height: 900px }}</style>
<iframe id="page" src="{source}"></iframe><pre></pre><script>onload = () => {{
  const root = page.contentDocument.documentElement, body = page.contentDocument.body
  const style = page.contentWindow.getComputedStyle(body)
  document.querySelector('pre').textContent = JSON.stringify(
    {{width: root.scrollWidth, height: root.scrollHeight, back: style.backgroundColor, text: style.color}})
}}</script>"""
BEFORE = (
    """select * from values (1, 'Ann', 'Bern', 3), (2, 'Bob', 'Basel', 7), (3, 'Cem', 'Genf', 1) as t(id, name, city, orders)"""
)
AFTER = """select id, name, city as town, cast(orders as bigint) as orders, false as is_new
from values (1, 'Ann', 'Zug', 8), (2, 'Bob', 'Basel', 7), (4, 'Dee', 'Chur', 0) as t(id, name, city, orders)"""
CUSTOMERS = "{{ config(materialized='upsert_kafka', unique_key='id', format='avro') }} "
STOCK = "{{ config(materialized='upsert_kafka', unique_key='sku', max_deletes=1, partitions=2) }} "


def browser(page: Path, folder: Path, *arguments: str) -> str:
    assert CHROMIUM is not None
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={folder / 'chromium'}", *arguments, page.as_uri()]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


def layout(page: Path, folder: Path, width: int, scheme: int) -> dict[str, Any]:
    """Size and colours of the page, as the browser shows it."""
    probe = folder / "probe.html"
    probe.write_text(PROBE.format(width=width, source=page.as_uri()))
    flags = ("--allow-file-access-from-files", f"--blink-settings=preferredColorScheme={scheme}", "--dump-dom")
    found = re.search(r"<pre>(.+?)</pre>", browser(probe, folder, *flags))
    assert found is not None
    return dict(json.loads(unescape(found[1])))


def brightness(color: str) -> int:
    return sum(map(int, re.findall(r"\d+", color)[:3]))


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (Debian: apt-get install chromium)")
def test_page_shows_every_change(dbt_project: Callable[..., Project], tmp_path: Path) -> None:
    project = dbt_project(
        {
            "models/customers.sql": CUSTOMERS + BEFORE,
            "models/stock.sql": STOCK + "select 'sku-' || id as sku, 10 * id as pieces from range(1, 6)",
        },
        schema="webshop",
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
        done = project.run("plan", "-o", str(project.folder / "out"), "--samples", "1", program="upsert-kafka")
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
    for kind, key in (("new", 4), ("changed", 1), ("deleted", 3)):
        assert f'{kind} key {{"id":{key}}}' in seen, seen
    # Avro is decoded with the columns of its run, so that the old value has the old names.
    assert re.search(r'class="differs"><td>city</td><td class="was"[^>]*><code>Bern</code></td><td class="none is"></td>', dom), (
        dom
    )
    assert re.search(r'class="differs"><td>town</td><td class="none was"></td><td class="is"[^>]*><code>Zug</code>', dom), dom
    folder = Path(os.environ.get("UPSERT_KAFKA_SCREENSHOTS", tmp_path))
    for width in WIDTHS:
        light, dark = (layout(page, tmp_path, width, scheme) for scheme in (LIGHT, DARK))
        assert light["width"] == dark["width"] == width, "nothing is wider than the screen"
        assert brightness(light["back"]) > 700 > 150 > brightness(light["text"])
        assert brightness(dark["back"]) < 150 < 600 < brightness(dark["text"])
        picture = folder / f"plan_{width}.png"
        browser(page, tmp_path, f"--screenshot={picture}", f"--window-size={width},{light['height']}")
        assert picture.stat().st_size > 20_000
