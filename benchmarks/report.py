"""Writes the results: docs/performance/results.json, a table (results.md) and charts (commands.svg, chart.svg,
growth.svg)."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import pyspark

from benchmarks.measured import Figure
from dbt.adapters.upsert_kafka.__version__ import version
from dbt.adapters.upsert_kafka.embedded.node import KAFKA_VERSION
from dbt.adapters.upsert_kafka.java import find_java

FOLDER = Path(__file__).parents[1] / "docs" / "performance"
RESULTS = FOLDER / "results.json"
COMMANDS, PUBLISHING, GROWTH = "whole-commands", "publishing", "growth"
HAND = "hand-written job"
OURS = re.compile("dbt run|upsert-kafka dbt|(at-least|exactly)-once")


def add(section: str, figures: list[Figure], **circumstances: str) -> None:
    """Replace a section's results in the file.

    Args:
        circumstances: in addition to those of the machine.
    """
    FOLDER.mkdir(exist_ok=True)
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    found[section] = {
        "circumstances": {**_circumstances(), **circumstances},
        "figures": [_described(figure) for figure in figures],
    }
    new = RESULTS.with_suffix(".new")
    new.write_text(json.dumps(found, indent=1) + "\n")
    new.replace(RESULTS)


def write(sections: Sequence[str]) -> None:
    """Write page and charts, with the sections in this order."""
    results = json.loads(RESULTS.read_text())
    found = {section: results[section] for section in sections if section in results}
    (FOLDER / "results.md").write_text("\n".join(_page(found)) + "\n")
    if COMMANDS in found:
        _chart(_of_commands(found[COMMANDS]["figures"]), "commands.svg", "the hand-written job")
    if PUBLISHING in found:
        of_sink = _of_largest_table(found[PUBLISHING]["figures"])
        _chart(of_sink, "chart.svg", "Spark's own Kafka sink writing all rows")
    if GROWTH in found:
        _growth_chart(found[GROWTH]["figures"])


def _described(figure: Figure) -> dict[str, Any]:
    rounded = [round(value, 4) for value in figure.values]
    ratio = None if figure.ratio is None else round(figure.ratio, 3)
    return {**asdict(figure), "values": rounded, "median": round(figure.median, 4), "ratio": ratio}


def _circumstances() -> dict[str, str]:
    java = subprocess.run([str(find_java()), "-version"], capture_output=True, text=True, check=True).stderr.splitlines()[0]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": f"{os.cpu_count()} cores, {memory:.0f} GB, {platform.system()} {platform.machine()}",
        "load": f"{os.getloadavg()[2]:.1f} on average in the last 15 minutes, this benchmark included",
        "versions": f"dbt-upsert-kafka {version}, dbt-core {metadata.version('dbt-core')}, Spark {pyspark.__version__}, "
        f"Kafka {KAFKA_VERSION}, Python {platform.python_version()}, {java}",
    }


def _page(found: dict[str, Any]) -> list[str]:
    lines = ["# Results", "", "Written by `make bench`; do not edit. Only figures of one section compare: it is one run.", ""]
    for section, content in found.items():
        lines += [f"## {section.replace('-', ' ').capitalize()}", ""]
        lines += [f"- {name}: {value}" for name, value in content["circumstances"].items()]
        works = dict.fromkeys(figure["work"] for figure in content["figures"])
        lines += ["", "| Work | Contender | Median | Spread | Ratio | Goal |", "| --- | --- | ---: | ---: | ---: | ---: |"]
        for work in works:
            lines += [_row(figure) for figure in content["figures"] if figure["work"] == work]
        lines.append("")
    return lines[:-1]


def _row(figure: dict[str, Any]) -> str:
    unit, values = figure["unit"], figure["values"]
    digits = 0 if figure["median"] >= 100 else 2
    spread = f"{min(values):,.{digits}f}–{max(values):,.{digits}f}"
    ratio = "" if figure["ratio"] is None else f"{figure['ratio']:.2f}x"
    goal = "" if figure["goal"] is None else f"≤ {figure['goal']:.2f}x"
    contender = f"{figure['contender']} ({figure['note']})" if figure["note"] else figure["contender"]
    return f"| {figure['work']} | {contender} | {figure['median']:,.{digits}f} {unit} | {spread} | {ratio} | {goal} |"


def pyplot() -> Any:
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    matplotlib.rcParams["svg.hashsalt"] = "dbt-upsert-kafka"
    return plt


def _growth_chart(figures: list[dict[str, Any]]) -> None:
    """Charts of seconds by rows, seconds by topic length, and driver memory."""
    drawing, axes = pyplot().subplots(1, 3, figsize=(11, 3.4))
    panels = {
        "µs per row": "seconds of a run, by rows (millions)",
        "s": "seconds of a run without changes,\nby records in the topic (millions)",
        "MB": "driver's memory in MB, by rows (millions)",
    }
    for axis, (unit, title) in zip(axes, panels.items(), strict=True):
        for work in dict.fromkeys(figure["work"] for figure in figures if figure["unit"] == unit):
            points = [figure for figure in figures if figure["work"] == work]
            rows = [int(re.sub(r"\D", "", figure["contender"])) for figure in points]
            scale = [number / 1e6 if unit == "µs per row" else 1.0 for number in rows]
            axis.plot([n / 1e6 for n in rows], [f["median"] * s for f, s in zip(points, scale, strict=True)], "o-", label=work)
        axis.set_title(title, loc="left", fontsize=9)
        axis.set_ylim(bottom=0)
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    for axis in axes[:2]:
        axis.legend(fontsize=7, frameon=False)
    drawing.tight_layout()
    drawing.savefig(FOLDER / "growth.svg", metadata={"Date": None})


def _of_commands(figures: list[Any]) -> list[Any]:
    """The figures of the works that the hand-written job does too."""
    works = {figure["work"] for figure in figures if figure["contender"] == HAND and figure["unit"] == "s"}
    return [figure for figure in figures if figure["work"] in works and "CPU" not in figure["work"]]


def _of_largest_table(figures: list[Any]) -> list[Any]:
    figures = [figure for figure in figures if figure["ratio"] is not None]
    most = max(figures, key=lambda figure: _rows(figure["work"]))["work"].split(", ", 1)[1]
    return [figure for figure in figures if figure["work"].endswith(most)]


def _chart(shown: list[dict[str, Any]], file: str, label: str) -> None:
    """Bars of the ratios, one panel per work; ours are blue."""
    works = list(dict.fromkeys(figure["work"] for figure in shown))
    size = (8, 0.34 * len(shown) + 0.5 * len(works))
    heights = [sum(figure["work"] == work for figure in shown) for work in works]
    drawing, axes = pyplot().subplots(
        len(works), 1, figsize=size, sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights}
    )
    for axis, work in zip(axes[:, 0], works, strict=True):
        bars = [figure for figure in shown if figure["work"] == work][::-1]
        colours = ["#2a78b5" if OURS.match(figure["contender"]) else "#b0b0b0" for figure in bars]
        axis.barh([figure["contender"] for figure in bars], [figure["ratio"] for figure in bars], color=colours)
        for place, figure in enumerate(bars):
            axis.text(figure["ratio"] + 0.02, place, f"{figure['ratio']:.2f}x", va="center", fontsize=8)
        axis.axvline(1, color="black", linewidth=0.6)
        axis.set_title(work, loc="left", fontsize=9)
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    axes[-1, 0].set_xlabel(f"time, as a multiple of {label} (shorter is better)", fontsize=8)
    drawing.tight_layout()
    drawing.savefig(FOLDER / file, metadata={"Date": None})


def _rows(work: str) -> int:
    return int(work.split(", ", 1)[1].split()[0].replace(",", ""))
