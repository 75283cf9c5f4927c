"""Writes docs/dbt_compatibility.md from the suites that run: `python docs/dbt_compatibility_page.py`."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]
PAGE = Path(__file__).with_name("dbt_compatibility.md")
SUITES, OURS = "dbt.tests.adapter", "tests.adapter_suites"

INTRODUCTION = """\
# dbt compatibility

<!-- The tables are written by docs/dbt_compatibility_page.py from the classes of tests/adapter_suites. Run it after a change. -->

What works in a project of this adapter, next to topics: views, tables, incremental models (append, merge, insert_overwrite,
microbatch), snapshots, seeds, ephemeral models, Python models, generic, singular and unit tests, stored failures, contracts,
hooks, `persist_docs`, `dbt docs`, `show`, `debug`, `clone`, `retry`, `--empty`, `--sample`, `--defer` and `state:`.

**A file format that merges**: incremental models with a `unique_key` and snapshots need one. One line of the profile brings
[Delta](https://delta.io), fetched like Spark's other jars, as the format of every table, seed and snapshot that names none:

```yaml
      file_format: delta      # parquet (Spark's default), orc or delta
```

An incremental model with a `unique_key` then merges unless it says otherwise; without the line it appends, as in dbt-spark.

"""


def suites() -> dict[str, type]:
    """The classes of dbt's suites that have tests, by their path below `dbt.tests.adapter`; not those for Postgres itself."""
    found = {}
    for module in _modules(SUITES):
        for name, suite in _classes(module):
            if not name.startswith(("Test", "_")) and any(member.startswith("test_") for member in dir(suite)):
                found[f"{module.__name__.removeprefix(SUITES + '.')}.{name}"] = suite
    return dict(sorted(found.items()))


def ours() -> list[type]:
    """Our classes in `tests/adapter_suites`."""
    return [suite for module in _modules(OURS) for name, suite in _classes(module) if name.startswith("Test")]


def runs() -> dict[str, list[str]]:
    """Which of our classes run each of dbt's."""
    classes = ours()
    return {path: sorted(c.__name__ for c in classes if suite in c.__mro__) for path, suite in suites().items()}


def problems() -> list[str]:
    """A class that neither runs nor has a reason, or has both."""
    from tests.adapter_suites.lengthy import LENGTHY
    from tests.adapter_suites.not_run import FOLDERS, REASONS, reason

    ran = runs()
    missing = [f"{path} neither runs nor has a reason in not_run.py" for path, by in ran.items() if not by and not reason(path)]
    both = [f"{path} runs, and not_run.py gives a reason against it" for path, by in ran.items() if by and reason(path)]
    stale = [f"{path} of not_run.py is no class of dbt's suites" for path in REASONS if path not in ran]
    folders = {path.partition(".")[0] for path in ran}
    classes = {c.__name__ for c in ours()}
    stale += [f"{name} of lengthy.py is no class of ours" for name in sorted(LENGTHY - classes)]
    return (
        missing + both + stale + [f"{name} of not_run.py is no folder of dbt's suites" for name in FOLDERS if name not in folders]
    )


def render() -> str:
    """The whole page."""
    from tests.adapter_suites.lengthy import LENGTHY

    ran = runs()
    number = sum(1 for by in ran.values() if by)
    variants = sorted(c.__name__ for c in ours() if "UpsertKafka" in c.__name__)
    quick = sum(suite.__name__ not in LENGTHY for suite in ours())
    topics, lengthy = (", ".join(f"`{name}`" for name in names) for names in (variants, sorted(LENGTHY)))
    parts = [
        INTRODUCTION,
        "## dbt's own adapter suites\n\n",
        f"{number} of the {len(ran)} classes of dbt-tests-adapter run, by {len(ours())} test classes, in `make suites`.\n",
        f"`make test`, and so CI, runs {quick} of these; too long for it are {lengthy}.\n\n",
        f"Variants in which a topic takes the place of a table: {topics}.\n\n",
        "| suite | runs |\n|---|---|\n",
        *(f"| {folder} | {', '.join(names)} |\n" for folder, names in _by_folder(p for p, by in ran.items() if by)),
        "\n## Not run\n\n| suite | class | reason |\n|---|---|---|\n",
        *(f"| {folder} | {names} | {why} |\n" for folder, names, why in _left_out(ran)),
    ]
    return "".join(parts)


def _left_out(ran: dict[str, list[str]]) -> Iterator[tuple[str, str, str]]:
    from tests.adapter_suites.not_run import FOLDERS, REASONS

    left_out = [path for path, by in ran.items() if not by]
    for path in left_out:
        if path in REASONS:
            yield path.partition(".")[0], path.rpartition(".")[2], REASONS[path]
    for folder, why in FOLDERS.items():
        yield folder, f"all {sum(path.startswith(f'{folder}.') for path in left_out)}", why


def _by_folder(paths: Iterator[str]) -> list[tuple[str, list[str]]]:
    found: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        found[path.partition(".")[0]].append(path.rpartition(".")[2])
    return sorted(found.items())


def _modules(package: str) -> Iterator[ModuleType]:
    # Some of the suites' folders are no packages.
    root = Path(importlib.import_module(package).__path__[0])
    for file in sorted(root.rglob("*.py")):
        name = ".".join(file.relative_to(root).with_suffix("").parts)
        if not name.endswith(("__init__", "conftest")):
            yield importlib.import_module(f"{package}.{name}")


def _classes(module: ModuleType) -> Iterator[tuple[str, type]]:
    for name, member in inspect.getmembers(module, inspect.isclass):
        if member.__module__ == module.__name__:
            yield name, member


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    for problem in problems():
        print(problem, file=sys.stderr)
    PAGE.write_text(render())
