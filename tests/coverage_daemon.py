"""The daemon of Spark's Python workers, with coverage: workers are killed at the end, so each task saves what it measured.

Spark starts it instead of pyspark.daemon if spark.python.daemon.module names it.
"""

from __future__ import annotations

import functools
from typing import Any

import coverage
from pyspark import daemon, worker


@functools.wraps(worker.main)
def _main(*arguments: Any) -> None:
    try:
        worker.main(*arguments)
    finally:
        measuring = coverage.Coverage.current()
        if measuring is not None:
            measuring.save()


if __name__ == "__main__":
    vars(daemon)["worker_main"] = _main
    daemon.manager()
