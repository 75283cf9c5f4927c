"""The private parts of pyspark that spark/shared_internals.py uses are where this release of pyspark is expected to have them."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys

import pyspark
from pyspark import SparkContext, java_gateway
from pyspark.sql import SparkSession

from dbt.adapters.upsert_kafka.spark import shared_internals, shared_jvm

MOVED = f"pyspark {pyspark.__version__} moved it: adapt dbt/adapters/upsert_kafka/spark/shared_internals.py"


def test_start_jvm_gets_the_pipe_that_ends_the_jvm() -> None:
    source = inspect.getsource(java_gateway.launch_gateway)
    assert 'popen_kwargs["stdin"] = PIPE' in source, f"the JVM does not end with a pipe. {MOVED}"


def test_attach_finds_the_address_of_a_gateway_in_the_environment() -> None:
    source = inspect.getsource(java_gateway.launch_gateway)
    for variable in (shared_internals.GATEWAY_PORT, shared_internals.GATEWAY_SECRET):
        assert f'os.environ["{variable}"]' in source, f"launch_gateway does not read {variable}. {MOVED}"


def test_attach_gives_pyspark_an_existing_context() -> None:
    parameters = inspect.signature(SparkContext.__init__).parameters
    assert {"gateway", "jsc", "conf"} <= set(parameters), f"SparkContext takes no existing context. {MOVED}"
    assert hasattr(SparkSession, "_get_j_spark_session_class"), f"SparkSession has another class in the JVM. {MOVED}"


def test_process_that_has_ended_is_not_running() -> None:
    assert shared_internals.is_running(os.getpid())
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert not shared_internals.is_running(process.pid)


def test_fingerprint_has_the_variables_of_libraries_in_the_jvm() -> None:
    variables = (
        "AWS_PROFILE",
        "AZURE_CLIENT_ID",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "JAVA_HOME",
        "JDK_JAVA_OPTIONS",
        "KRB5_CONFIG",
    )
    assert set(shared_jvm.fingerprint_of({}, {}, dict.fromkeys((*variables, "EDITOR"), "x"))) == {*variables, "the jars"}


def test_fingerprint_names_what_changed_and_hides_values() -> None:
    first = shared_jvm.fingerprint_of({"spark.master": "local"}, {"PASSWORD": "secret"}, {"TZ": "UTC", "EDITOR": "vi"})
    second = shared_jvm.fingerprint_of({"spark.master": "local"}, {"PASSWORD": "rotated"}, {"TZ": "UTC", "EDITOR": "ed"})
    assert [name for name in first if first[name] != second[name]] == ["PASSWORD"]
    assert set(first) == {"spark.master", "PASSWORD", "TZ", "the jars"} and "secret" not in str(first)
