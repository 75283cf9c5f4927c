"""The private parts of pyspark that spark/internals.py uses are where this release of pyspark is expected to have them.

No JVM is started: signatures, attributes and source texts are inspected.
"""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from zipfile import ZipFile

import pyspark
import pytest
from pyspark import SparkContext, java_gateway
from pyspark.errors.exceptions import base
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession
from pyspark.sql.classic.dataframe import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from dbt.adapters.upsert_kafka.spark import internals
from dbt.adapters.upsert_kafka.spark.internals import LOCAL_CHECKPOINT_MANAGERS
from dbt.adapters.upsert_kafka.spark.restoring_session import RestoringSession

MOVED = f"pyspark {pyspark.__version__} moved it: adapt dbt/adapters/upsert_kafka/spark/internals.py"


def test_launch_jvm_finds_the_function_that_starts_the_gateway() -> None:
    start = getattr(SparkContext, "_ensure_initialized", None)
    assert start is not None, f"SparkContext has no _ensure_initialized. {MOVED}"
    assert "gateway" in inspect.signature(start).parameters, f"SparkContext._ensure_initialized takes no gateway. {MOVED}"
    source = inspect.getsource(java_gateway.launch_gateway)
    assert "Popen(command, **popen_kwargs)" in source, f"launch_gateway does not start its command with popen_kwargs. {MOVED}"
    assert "./bin/spark-submit" in source, f"launch_gateway does not start spark-submit, which `launcher` replaces. {MOVED}"


def test_jvm_process_finds_the_process_of_the_gateway() -> None:
    assert hasattr(SparkContext, "_gateway"), f"SparkContext has no _gateway. {MOVED}"
    source = inspect.getsource(java_gateway.launch_gateway)
    assert "gateway.proc = proc" in source, f"launch_gateway does not keep the JVM's process as gateway.proc. {MOVED}"


def test_jvm_process_without_a_jvm_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_gateway", None)
    with pytest.raises(AssertionError, match="Spark runs in no JVM of this process"):
        internals.jvm_process()


def test_local_checkpoint_manager_is_a_class_of_this_spark() -> None:
    [jar] = Path(pyspark.__file__).parent.glob("jars/spark-sql_*.jar")
    with ZipFile(jar) as files:
        found = set(files.namelist()).intersection(f"{name.replace('.', '/')}.class" for name in LOCAL_CHECKPOINT_MANAGERS)
    assert found, f"Spark has no FileSystemBasedCheckpointFileManager, streams write checkpoints slowly. {MOVED}"


def test_new_session_is_made_as_pyspark_makes_it() -> None:
    source = inspect.getsource(SparkSession.newSession)
    assert "self.__class__(self._sc, self._jsparkSession.newSession())" in source, f"newSession has changed. {MOVED}"


def test_restoring_session_overrides_methods_with_the_same_parameters() -> None:
    for name in ("sql", "table"):
        of_pyspark, ours = (list(inspect.signature(getattr(cls, name)).parameters) for cls in (SparkSession, RestoringSession))
        assert of_pyspark == ours, f"SparkSession.{name} has other parameters. {MOVED}"


def test_catalog_listener_finds_the_callback_server() -> None:
    assert hasattr(java_gateway, "ensure_callback_server_started"), f"pyspark starts no callback server. {MOVED}"


def test_progress_reports_finds_the_query_of_the_jvm_and_returns_new_reports() -> None:
    source = inspect.getsource(StreamingQuery.__dict__["recentProgress"].fget)
    assert "self._jsq.recentProgress()" in source, f"StreamingQuery asks for its reports in another way. {MOVED}"
    reports = [SimpleNamespace(timestamp=lambda t=t: t, json=lambda t=t: f'{{"timestamp": "{t}"}}') for t in ("1", "2", "3")]
    query = SimpleNamespace(_jsq=SimpleNamespace(recentProgress=lambda: reports))
    found = {after: [report["timestamp"] for report in internals.progress_reports(query, after)] for after in ("", "1", "3")}
    assert found == {"": ["1", "2", "3"], "1": ["2", "3"], "3": []}


def test_unpersist_checkpoint_finds_the_frame_of_the_jvm() -> None:
    source = inspect.getsource(DataFrame.__init__)
    assert "self._jdf" in source, f"DataFrame has no _jdf. {MOVED}"
    source = inspect.getsource(DataFrame.localCheckpoint)
    assert "self._jdf.localCheckpoint(" in source, f"localCheckpoint is not computed by the JVM's frame. {MOVED}"


@pytest.mark.parametrize("name", internals.QUERY_CONTEXT_LOGGERS)
def test_query_context_loggers_have_the_names_that_are_disabled(name: str) -> None:
    source = inspect.getsource(base)
    assert f'PySparkLogger.getLogger("{name}")' in source, f"pyspark does not log errors as {name}. {MOVED}"


def test_query_context_loggers_are_disabled() -> None:
    internals.disable_query_context_loggers()
    assert all(PySparkLogger.getLogger(name).disabled for name in internals.QUERY_CONTEXT_LOGGERS)


def test_connect_retries_find_the_policy_and_its_setter() -> None:
    pytest.importorskip("grpc_status", reason="Spark Connect is an extra: pip install 'dbt-upsert-kafka[connect]'")
    from pyspark.sql.connect.client import SparkConnectClient
    from pyspark.sql.connect.client.retries import DefaultPolicy
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    assert "max_retries" in inspect.signature(DefaultPolicy).parameters, f"DefaultPolicy takes no max_retries. {MOVED}"
    assert hasattr(SparkConnectClient, "set_retry_policies"), f"SparkConnectClient has no set_retry_policies. {MOVED}"
    assert hasattr(ConnectSession, "client"), f"Spark Connect's SparkSession has no client. {MOVED}"


def test_streaming_plans_find_the_session_and_the_plan_of_the_jvm() -> None:
    source = inspect.getsource(SparkSession.__init__)
    assert "self._jsparkSession = " in source, f"SparkSession keeps no _jsparkSession. {MOVED}"
    assert "self._jvm = " in source, f"SparkSession keeps no _jvm. {MOVED}"
    assert "_jdf" in inspect.getsource(DataFrame.__init__), f"DataFrame keeps no _jdf. {MOVED}"


def test_numpy_values_are_converted_without_pandas() -> None:
    code = """
import sys
from dbt.adapters.upsert_kafka.spark import session
from pyspark.sql.types import NumpyArrayConverter, NumpyScalarConverter
array, scalar = NumpyArrayConverter(), NumpyScalarConverter()
assert not array.can_convert([1]) and not scalar.can_convert(1)
assert "pandas" not in sys.modules, "pandas was imported"
import numpy
assert array.can_convert(numpy.array([1])) and not array.can_convert(numpy.array([[1]])) and not array.can_convert([1])
assert scalar.can_convert(numpy.int64(1)) and not scalar.can_convert(1)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stderr} {MOVED}"
