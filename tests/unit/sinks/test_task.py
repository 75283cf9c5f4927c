"""What is shipped to Spark's workers: it runs where this package is not installed, and shows no password."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pyspark import cloudpickle

from dbt.adapters.upsert_kafka.partitioners import Partitioner, _by_function, _default
from dbt.adapters.upsert_kafka.sinks import transaction
from dbt.adapters.upsert_kafka.sinks.record_batch import Identity
from dbt.adapters.upsert_kafka.sinks.task import Assignment, writer

ASSIGNMENT = Assignment(Identity("id", 1, 0), "topic", {"sasl_plain_password": "sesame"}, 30, 1000, "lz4")
LOAD = """
import pickle, sys
function = pickle.load(open(sys.argv[1], "rb"))
try:
    print(next(function(iter([])), "nothing"))
except Exception as error:
    print(type(error).__name__)
print([name for name in sys.modules if name.startswith("dbt")])
"""


def test_workers_need_no_package_of_ours(tmp_path: Path) -> None:
    assert transaction.ATTEMPTS  # importing it is what makes functions travel by value
    file = tmp_path / "function"
    file.write_bytes(cloudpickle.dumps(writer(ASSIGNMENT)))
    # -I: neither PYTHONPATH nor the current folder.
    loaded = subprocess.run([sys.executable, "-I", "-c", LOAD, file], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert loaded.stdout.splitlines() == ["SecondAttemptError", "[]"]


def test_partitioners_need_no_package_of_ours_on_workers(tmp_path: Path) -> None:
    functions = [_default(3), _by_function("name", len, 3)]
    assert Partitioner().kind == "default"
    file = tmp_path / "functions"
    file.write_bytes(cloudpickle.dumps(functions))
    code = "import pickle, sys; pickle.load(open(sys.argv[1], 'rb')); print([n for n in sys.modules if n.startswith('dbt')])"
    loaded = subprocess.run([sys.executable, "-I", "-c", code, file], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert loaded.stdout.strip() == "[]"


def test_an_assignment_shows_no_password() -> None:
    assert "sesame" not in repr(ASSIGNMENT)
