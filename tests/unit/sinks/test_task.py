"""Functions for Spark's workers: they run without this package, and their repr contains no password."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from zipfile import ZipFile

import pyarrow as pa
import pytest
from kafka import errors
from kafka.record.memory_records import MemoryRecords
from pyspark import cloudpickle
from pyspark.errors import PySparkException

from dbt.adapters.upsert_kafka.sinks import task, transaction
from dbt.adapters.upsert_kafka.sinks.partitioners import Partitioner, _by_function
from dbt.adapters.upsert_kafka.sinks.record_batch import Producer
from dbt.adapters.upsert_kafka.sinks.task import Assignment, choose_partitions, encoder, writer

ASSIGNMENT = Assignment(Producer("id", 1, 0), "topic", {"sasl_plain_password": "sesame"}, 30)
# The partitions that the Java producer chooses for these keys, of seven.
IN_SEVEN = {b"": 2, b"a": 5, b"ab": 0, b"abc": 4, b"foobar": 0, b'{"user_id":1}': 6}
LOAD = """
import pickle, sys
for function in pickle.load(open(sys.argv[1], "rb")):
    try:
        print(next(function(iter([])), "nothing"))
    except Exception as error:
        print(type(error).__name__)
print([name for name in sys.modules if name.startswith("dbt")])
"""


def test_zip_importers_are_removed_from_the_import_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "modules.zip"
    with ZipFile(archive, "w") as zipped:
        for name in ("zipped_one", "zipped_two"):
            zipped.writestr(f"{name}.py", "answer = 42")
    monkeypatch.syspath_prepend(archive)
    importlib.import_module("zipped_one")
    assert str(archive) in sys.path_importer_cache
    assert list(encoder(3, 1000, "lz4")([])) == []
    assert str(archive) not in sys.path_importer_cache
    assert importlib.import_module("zipped_two").answer == 42


def test_functions_run_without_this_package(tmp_path: Path) -> None:
    assert transaction.DEFAULTS  # its import registers the modules for pickling by value
    file = tmp_path / "function"
    file.write_bytes(cloudpickle.dumps([encoder(3, 1000, "lz4"), writer(ASSIGNMENT)]))
    # -I ignores PYTHONPATH and the current folder.
    loaded = subprocess.run([sys.executable, "-I", "-c", LOAD, file], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert loaded.stdout.splitlines() == ["nothing", "SecondAttemptError", "[]"]


def test_error_of_a_write_is_the_result_of_its_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raised, it would be lost: a cluster's Spark repeats the task and reports the error of the last attempt."""

    def fail(*_: object) -> None:
        raise errors.MessageSizeTooLargeError("no")

    monkeypatch.setattr(task, "Client", fail)
    monkeypatch.setattr(task.TaskContext, "get", lambda: SimpleNamespace(attemptNumber=lambda: 0))
    batch = {"partition": 0, "task": 0, "number": 0, "records": 1, "batch": b"b"}
    batches = iter([pa.RecordBatch.from_pylist([batch], schema=task._BATCHES)] * 3)
    [report] = [row for rows in writer(ASSIGNMENT)(batches) for row in rows.to_pylist()]
    assert report["error"].startswith("kafka.errors.MessageSizeTooLargeError: ") and report["partition"] is None
    assert next(batches, None) is None, "Spark's worker expects that all input is read"


def test_first_error_of_the_tasks_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    ok, failed = SimpleNamespace(error=None), SimpleNamespace(error="kafka.errors.MessageSizeTooLargeError: no")
    with pytest.raises(PySparkException, match="MessageSizeTooLargeError"):
        transaction.checked([ok, failed])
    assert transaction.checked([ok]) == [ok]


def test_partitioner_function_runs_without_this_package(tmp_path: Path) -> None:
    functions = [_by_function("name", len, 3)]
    assert Partitioner().kind == "default"
    file = tmp_path / "functions"
    file.write_bytes(cloudpickle.dumps(functions))
    code = "import pickle, sys; pickle.load(open(sys.argv[1], 'rb')); print([n for n in sys.modules if n.startswith('dbt')])"
    loaded = subprocess.run([sys.executable, "-I", "-c", code, file], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert loaded.stdout.strip() == "[]"


def test_default_partitions_equal_those_of_the_java_client() -> None:
    keys = {"key": pa.array(IN_SEVEN, pa.binary()), "partition": pa.nulls(len(IN_SEVEN), pa.int32())}
    assert list(choose_partitions(pa.table(keys), 7)) == list(IN_SEVEN.values())


def test_given_partitions_are_kept_and_records_without_a_key_get_partitions_in_turn() -> None:
    keys, given = [None, b"a", None, b"a"], [None, 3, 6, None]
    table = pa.table({"key": pa.array(keys, pa.binary()), "partition": pa.array(given, pa.int32())})
    assert list(choose_partitions(table, 7, row=13)) == [6, 3, 6, 5]


def test_encoded_batches_contain_every_row_once_and_in_order() -> None:
    keys = [b"k%d" % i for i in range(1000)]
    values, given = pa.array([b"v" * i for i in range(1000)], pa.binary()), pa.array([i % 3 for i in range(1000)], pa.int32())
    table = pa.table({"key": pa.array(keys, pa.binary()), "value": values, "partition": given})
    made = [row for batch in encoder(3, 20_000, "lz4")(table.to_batches(max_chunksize=300)) for row in batch.to_pylist()]
    assert [row["number"] for row in made] == list(range(len(made))) and len(made) > 10
    for partition in range(3):
        batches = [MemoryRecords(row["batch"]).next_batch() for row in made if row["partition"] == partition]
        assert [r.key for batch in batches for r in batch] == keys[partition::3]
    assert sum(row["records"] for row in made) == 1000


def test_repr_of_an_assignment_contains_no_password() -> None:
    assert "sesame" not in repr(ASSIGNMENT)
