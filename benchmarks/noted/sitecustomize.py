"""Notes when steps of a dbt command begin and end, as lines of JSON in the file UPSERT_KAFKA_NOTES; see `benchmarks.timeline`.

Python imports this module when it starts, if its folder is on the path. Functions are wrapped after their module was imported.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.util
import json
import os
import sys
import threading
import time
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

STARTED = time.time()
OURS = "dbt.adapters.upsert_kafka"
# Module: attribute path and name of the step.
STEPS = {
    "dbt.parser.manifest": [("ManifestLoader.get_full_manifest", "dbt: parse")],
    "dbt.task.runnable": [("GraphRunnableTask.before_run", "dbt: list schemas and relations")],
    f"{OURS}.spark.internals": [("launch_jvm", "Spark: JVM")],
    "pyspark.sql.session": [("SparkSession.Builder.getOrCreate", "Spark: session")],
    f"{OURS}.spark.project_catalog": [("ProjectCatalog.attach", "Spark: catalog")],
    f"{OURS}.embedded": [("ensure_running", "Kafka: embedded broker")],
    f"{OURS}.publish.pipeline": [("publish", "model: publish")],
    f"{OURS}.publish.memory": [("recall", "model: state record"), ("Memory.close", "model: close state record")],
    f"{OURS}.publish.compare": [("compare", "model: compare")],
    f"{OURS}.publish.deliver": [("deliver", "model: deliver")],
    f"{OURS}.publish.expose": [("expose", "model: view")],
    f"{OURS}.spark.session": [("stop", "exit: stop Spark")],
}
# Their imports are steps of their own.
IMPORTS = {"dbt.cli.main": "import dbt", f"{OURS}.impl": "import the adapter", "pyspark.sql": "import pyspark"}
SHORTEST = 0.005


def note(step: str, begin: float) -> None:
    end = time.time()
    if end - begin < SHORTEST:
        return
    line = {"step": step, "begin": begin, "end": end, "thread": threading.current_thread().name}
    with open(os.environ["UPSERT_KAFKA_NOTES"], "a") as file:
        file.write(json.dumps(line) + "\n")


def wrap(module: Any, path: str, step: str) -> None:
    *parents, name = path.split(".")
    for parent in parents:
        module = getattr(module, parent)
    function = getattr(module, name)
    kept = module.__dict__.get(name)

    @functools.wraps(function)
    def noted(*arguments: Any, **keywords: Any) -> Any:
        begin = time.time()
        try:
            return (kept.__func__ if isinstance(kept, classmethod) else function)(*arguments, **keywords)
        finally:
            note(step, begin)

    setattr(module, name, classmethod(noted) if isinstance(kept, classmethod) else noted)


class Finder(importlib.abc.MetaPathFinder):
    """Finds modules like Python, and wraps their functions when they are loaded."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name not in STEPS and name not in IMPORTS:
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            sys.meta_path.insert(0, self)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def load(module: ModuleType) -> None:
            begin = time.time()
            execute(module)
            if name in IMPORTS:
                note(IMPORTS[name], begin)
            for attribute, step in STEPS.get(name, ()):
                wrap(module, attribute, step)

        spec.loader.exec_module = load  # type: ignore[method-assign]
        return spec


if "UPSERT_KAFKA_NOTES" in os.environ and "dbt.cli.main" in " ".join(sys.orig_argv):
    note("start Python", STARTED - 0.01)
    sys.meta_path.insert(0, Finder())
