"""`make matrix`: builds the environment of each row, runs the core tests in it, and writes the results to docs/compatibility.*.

    python -m tests.matrix                    all rows, one after the other
    python -m tests.matrix --nightly          the rows that differ most from the locked set
    python -m tests.matrix py3.12 spark4.2    the rows whose names contain one of these texts

A row whose Python or Java is not on this machine is skipped with a message; its last result stays.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from dbt.adapters.upsert_kafka.java import fetch_files
from docs import compatibility_page
from tests.matrix import environment
from tests.matrix.rows import CORE, ROWS, Row
from tests.services import registry_archive

TIMEOUT_SECONDS = 1800
PROBLEMS: dict[type[Exception], str] = {
    environment.CommandError: "not installed",
    subprocess.TimeoutExpired: f"not finished after {TIMEOUT_SECONDS // 60} minutes",
}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make matrix")
    parser.add_argument("--nightly", action="store_true", help="only the rows that differ most from the locked set")
    parser.add_argument("names", nargs="*", help="parts of the names of rows")
    given = parser.parse_args(arguments)
    rows = [row for row in ROWS if not given.names or any(part in row.name for part in given.names)]
    if not rows:
        parser.error(f"no row's name contains {' or '.join(given.names)}")
    outcomes = [run(row) for row in rows if row.nightly or not given.nightly]
    ran = [outcome for outcome in outcomes if outcome is not None]
    failed = [outcome["row"] for outcome in ran if outcome["failed"]]
    print(f"{len(failed)} of {len(ran)} rows failed{': ' + ', '.join(failed) if failed else ''}")
    return 1 if failed else 0


def run(row: Row) -> dict[str, Any] | None:
    """Run a row and store its result, whatever happens; None if this machine can't run it."""
    started = time.monotonic()
    try:
        java_home = environment.find_java(row.java)
        environment.find_python(row.python)
    except environment.NotAvailableError as error:
        print(f"{row.name}: skipped, {error}", flush=True)
        return None
    versions = {"python": row.python, "dbt-core": row.dbt, "pyspark": row.spark}
    passed, failed, problem = 0, 1, {}
    try:
        python = environment.build(row)
        versions = environment.versions(python)
        passed, failed = tested(row, python, java_home)
    except Exception as error:
        # The other rows run anyway. The table shows what happened to this one.
        traceback.print_exc()
        problem = {"problem": PROBLEMS.get(type(error), f"not run ({type(error).__name__})")}
    result = {
        "row": row.name,
        "oldest": row.oldest,
        "java": row.java,
        "java_version": environment.java_version(java_home),
        "brokers": row.brokers,
        "versions": versions,
        "other_jars": bool(environment.jars(row)),
        "passed": passed,
        "failed": failed,
        **problem,
        "seconds": round(time.monotonic() - started),
        "date": datetime.now(UTC).date().isoformat(),
    }
    compatibility_page.add(result)
    print(f"{row.name}: {result['passed']} passed, {result['failed']} failed, {result['seconds']} s", flush=True)
    return result


def tested(row: Row, python: Path, java_home: Path) -> tuple[int, int]:
    """Run the core tests with the row's interpreter; returns how many passed and failed."""
    # Downloaded by this machine's Java, which trusts the certificates that this machine needs.
    if environment.jars(row):
        fetch_files("jars", environment.jars(row).split(","))
    registry_archive()
    with environment.brokers(row.brokers) as servers, tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        variables = {
            **os.environ,
            "JAVA_HOME": str(java_home),
            "UPSERT_KAFKA_TEST_BROKER": servers[row.brokers[0]],
            "UPSERT_KAFKA_TEST_BROKERS": ",".join(f"{version}={address}" for version, address in servers.items()),
            "UPSERT_KAFKA_TEST_JARS": environment.jars(row),
            # The environment's own packages only.
            "VIRTUAL_ENV": str(python.parents[1]),
        }
        command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *CORE]
        done = subprocess.run(command, cwd=environment.ROOT, env=variables, check=False, timeout=TIMEOUT_SECONDS)
        passed, failed = counts(report) if report.exists() else (0, 1)
    return passed, max(failed, int(done.returncode != 0))


def counts(report: Path) -> tuple[int, int]:
    """Tests that passed, and tests that failed or did not run. A skipped test is not a passed one."""
    [suite] = ElementTree.parse(report).getroot().iter("testsuite")
    tests, others = int(suite.get("tests", 0)), sum(int(suite.get(kind, 0)) for kind in ("failures", "errors", "skipped"))
    return tests - others, others


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
