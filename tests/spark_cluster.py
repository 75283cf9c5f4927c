"""Spark in other processes, from the pip package: a standalone master with workers, and a Spark Connect server.

Their Python has no dbt, so the code of the tasks must be sent with the job.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sysconfig
import tempfile
import time
import venv
from collections.abc import Sequence
from pathlib import Path

import pyspark

from dbt.adapters.upsert_kafka.embedded.node import LOOPBACK, free_ports
from dbt.adapters.upsert_kafka.java import find_java
from tests.dbt_project import QUICK_JVM
from tests.services import Service

SPARK_HOME = Path(pyspark.__file__).parent
START_SECONDS = 300.0


class SparkProcess:
    """A Spark process, started with `spark-class`, with its log in a file."""

    def __init__(self, folder: Path, name: str, *command: str, ready: str, **environment: str) -> None:
        self._log = folder / f"{name}.log"
        self._ready = ready
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYSPARK", "SPARK", "DBT"))}
        settings = {
            "SPARK_HOME": str(SPARK_HOME),
            "JAVA_HOME": str(find_java().resolve().parents[1]),
            "SPARK_LOCAL_IP": LOOPBACK,
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": QUICK_JVM,
            "SPARK_LOCAL_DIRS": str(folder / "scratch"),
        }
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [str(SPARK_HOME / "bin" / "spark-class"), *command], cwd=folder, stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, env={**inherited, **settings, **environment}, start_new_session=True,
            )  # fmt: skip

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def wait(self) -> None:
        """Wait until the log shows that the process has started."""
        until = time.monotonic() + START_SECONDS
        while self._ready not in self.log:
            assert self.process.poll() is None and time.monotonic() < until, f"Spark did not start:\n{self.log[-3000:]}"
            time.sleep(0.1)

    def end(self) -> None:
        """Kill the process and its children."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        self.process.wait(60)


class StandaloneSpark(Service):
    """A master with workers of one core each, started on entry and killed on exit."""

    def __init__(self, workers: int = 2) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="upsert-kafka-spark-"))
        self._number = workers
        [self._port] = free_ports(1)
        self.master = f"spark://{LOOPBACK}:{self._port}"
        self.python = bare_python(self._folder / "python")
        self._processes: list[SparkProcess] = []

    @property
    def profile(self) -> dict[str, object]:
        """The settings of a dbt profile that uses this cluster, with executors small enough to run side by side."""
        return {"master": self.master, "spark": executor_settings(self.python) | {"spark.driver.host": LOOPBACK}}

    @property
    def workers(self) -> list[SparkProcess]:
        return self._processes[1:]

    def start(self) -> None:
        listen = ["--host", LOOPBACK, "--webui-port", "0"]
        command = ["org.apache.spark.deploy.master.Master", *listen, "--port", str(self._port)]
        self._processes.append(SparkProcess(self._folder, "master", *command, ready="I have been elected leader"))
        self._processes[0].wait()
        for number in range(self._number):
            resources = ["--cores", "1", "--memory", "800m", "--work-dir", str(self._folder / f"work-{number}")]
            command = ["org.apache.spark.deploy.worker.Worker", *listen, *resources, self.master]
            ready = "Successfully registered with master"
            self._processes.append(SparkProcess(self._folder, f"worker-{number}", *command, ready=ready))
        for process in self.workers:
            process.wait()

    def close(self) -> None:
        for process in reversed(self._processes):
            process.end()
        shutil.rmtree(self._folder, ignore_errors=True)


class ConnectServer(Service):
    """A Spark Connect server with a local Spark, started on entry and killed on exit.

    Args:
        jars: in addition to Spark's own.
    """

    def __init__(self, jars: Sequence[Path] = ()) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="upsert-kafka-connect-"))
        [self._port] = free_ports(1)
        self.remote = f"sc://{LOOPBACK}:{self._port}"
        self._python = bare_python(self._folder / "python")
        self._jars = jars
        self._process: SparkProcess | None = None

    def start(self) -> None:
        settings = {
            "spark.connect.grpc.binding.address": LOOPBACK,
            "spark.connect.grpc.binding.port": str(self._port),
            "spark.driver.host": LOOPBACK,
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(self._folder / "warehouse"),
            "spark.jars": ",".join(map(str, self._jars)),
            "spark.ui.enabled": "false",
        }
        options = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        main = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
        command = ["org.apache.spark.deploy.SparkSubmit", "--master", "local[2]", *options, *main]
        self._process = SparkProcess(
            self._folder, "server", *command, ready="Spark Connect server started",
            PYSPARK_PYTHON=str(self._python), SPARK_DAEMON_MEMORY="1g",
        )  # fmt: skip
        self._process.wait()

    def close(self) -> None:
        if self._process is not None:
            self._process.end()
        shutil.rmtree(self._folder, ignore_errors=True)


def executor_settings(python: Path) -> dict[str, str]:
    return {
        "spark.pyspark.python": str(python),
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": QUICK_JVM,
        "spark.cores.max": "2",
    }


def bare_python(folder: Path) -> Path:
    """Create a Python with the packages of this one, except dbt and this package."""
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    [packages] = folder.glob("lib/python*/site-packages")
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith(("dbt", "_")) and entry.suffix != ".pth":
            (packages / entry.name).symlink_to(entry)
    probe = [str(python), "-Ic", "import pyarrow, kafka, crc32c; import dbt"]
    probed = subprocess.run(probe, check=False, capture_output=True, text=True)
    assert "No module named 'dbt'" in probed.stderr, probed.stderr
    return python
