"""Fixtures for all tests: one broker and one Spark per pytest process, a topic name and dbt projects for each test."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from dbt_common.events.event_manager import EventManager
from dbt_common.events.event_manager_client import ctx_set_event_manager, get_event_manager
from pyspark.sql import SparkSession

from tests.dbt_project import OTHER_JARS, QUICK_JVM, Project
from tests.services import Cluster, SchemaRegistry

pytest_plugins = ["tests.property_tests"]

# Files that take minutes, the longest first. If one of them started last, the other workers would wait for it.
LONGEST_FIRST = [
    "test_kills",
    "test_resident",
    "test_group_kills",
    "test_project_catalog",
    "test_containers",
    "test_state_cases",
    "test_state_model",
    "test_streams",
    "test_stream_kills",
    "test_state",
    "test_ownership",
    "test_delivery",
    "test_plan",
    "test_snapshots",
    "test_formats",
    "test_connect",
    "test_changes",
    "test_embedded_broker",
    "test_upsert_kafka",
    "test_security",
    "test_registry",
    "test_streams_delta",
    "test_stream_command",
    "test_schedules",
    "test_unverified_schedules",
    "test_model_options",
    "test_transactional_groups",
    "test_kafka_source",
    "test_group_commits",
    "test_kafka_sink",
    "test_guards",
    "test_rights",
    "test_helper_tables",
    "test_refusals",
    "test_plan_samples",
    "test_transaction",
    "test_start",
    "test_streams_dbt",
    "test_versions",
    "test_two_runs",
    "test_standalone",
    "test_set_up",
    "test_distribution",
    # dbt's adapter suites.
    "test_incremental",
    "test_relations",
    "test_constraints",
    "test_hooks",
    "test_tests",
    "test_docs",
    "test_commands",
]

# Fixtures that start a JVM.
SERVICES = {"broker", "fault_cluster", "registry", "secured", "spark"}

# A background job of a script ignores SIGINT, and so would every process that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)

# DBT_* variables of the caller change what dbt does.
for _name in [name for name in os.environ if name.startswith("DBT_")]:
    del os.environ[_name]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-services", action="store_true", help="deselect the tests whose fixtures start Spark or Kafka")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    order = {name: place for place, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: order.get(item.path.stem, len(order)))
    if config.getoption("no_services"):
        deselected = [item for item in items if SERVICES.intersection(getattr(item, "fixturenames", ()))]
        config.hook.pytest_deselected(items=deselected)
        items[:] = [item for item in items if item not in deselected]


FINDING = "finding"
"""The name of a property of a test: a line that is printed at the end, also if the test succeeds."""


class Findings:
    """Prints at the end what tests have found. A worker of xdist can't print, but its reports reach this process."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            found = [value for name, value in report.user_properties if name == FINDING]
            self._lines += [f"{report.nodeid.rpartition('::')[2]}: {value}" for value in found]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._lines:
            terminalreporter.section("findings")
            for line in self._lines:
                terminalreporter.write_line(line)


class FailuresAtOnce:
    """Prints a failure when it happens. If the run is ended from outside, the summary is never printed."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._terminal.write_line(f"\nFAILED {report.nodeid} ({report.when})\n{report.longreprtext}")


def pytest_sessionstart(session: pytest.Session) -> None:
    # A worker of xdist has no reporter.
    if terminal := session.config.pluginmanager.get_plugin("terminalreporter"):
        session.config.pluginmanager.register(FailuresAtOnce(terminal))
        session.config.pluginmanager.register(Findings())


@pytest.fixture
def finding(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Reports a line that is printed at the end: numbers and seeds."""
    return lambda text: record_property(FINDING, text)


@pytest.fixture(scope="session")
def broker() -> Iterator[str]:
    """Bootstrap servers of a Kafka broker that is started here, or of the one in UPSERT_KAFKA_TEST_BROKER."""
    running = os.environ.get("UPSERT_KAFKA_TEST_BROKER")
    if running:
        yield running
        return
    with Cluster() as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture(scope="session")
def registry() -> Iterator[str]:
    """URL of a schema registry with Confluent's API."""
    with SchemaRegistry() as running:
        yield running.url


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local Spark with the Kafka and Avro jars and an in-memory catalog."""
    import pyspark

    from dbt.adapters.upsert_kafka.java import fetch_files
    from dbt.adapters.upsert_kafka.spark.settings import fetch_kafka_jars

    jars = fetch_files("jars", OTHER_JARS) if OTHER_JARS else fetch_kafka_jars(pyspark.__version__)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # Set by `coverage run`. Spark's workers have to save what was measured before they are killed.
    workers = "tests.coverage_daemon" if "COVERAGE_PROCESS_CONFIG" in os.environ else "pyspark.daemon"
    session = (
        SparkSession.builder.master("local[2]")
        .appName("dbt-upsert-kafka tests")
        .config("spark.jars", ",".join(map(str, jars)))
        .config("spark.python.daemon.module", workers)
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", QUICK_JVM)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.ansi.enabled", "true")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> str:
    """A topic name that is derived from the test and unique."""
    module = Path(str(request.node.path)).stem.removeprefix("test_")
    return re.sub(r"[^A-Za-z0-9._-]+", "-", f"{module}.{request.node.name.removeprefix('test_')}")[:200].strip("-")


@pytest.fixture
def schema_name(topic_name: str) -> str:
    """A Spark database named after the test. dbt names topics after it, so tests share a broker but no topic."""
    return re.sub(r"\W+", "_", topic_name.lower())[:100].strip("_")


@pytest.fixture
def dbt_project(tmp_path: Path, broker: str, schema_name: str) -> Callable[..., Project]:
    """Make a dbt project from a dict of files, with a profile for the tests' broker. Keywords change the profile."""

    def make(files: dict[str, str], name: str = "project", **profile: Any) -> Project:
        settings = {"bootstrap_servers": broker, "schema": schema_name, **profile}
        return Project(tmp_path / name, **settings).write(files)

    return make


@pytest.fixture
def warnings() -> Iterator[list[str]]:
    """The warnings that are given to dbt during the test, in this process."""
    found: list[str] = []
    manager = EventManager()
    manager.add_callback(lambda message: found.append(message.data.base_msg) if message.info.level == "warn" else None)
    previous = get_event_manager()
    ctx_set_event_manager(manager)
    yield found
    ctx_set_event_manager(previous)


@pytest.fixture
def warn_error(warnings: list[str]) -> list[str]:
    """--warn-error in this process."""
    get_event_manager().warn_error = True
    return warnings
