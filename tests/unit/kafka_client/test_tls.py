"""TLS settings and tokens in Spark workers, where this package may not be installed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle

from dbt.adapters.upsert_kafka.kafka_client.oauth import TokenProvider
from dbt.adapters.upsert_kafka.kafka_client.tls import Tls
from dbt.adapters.upsert_kafka.sinks import transaction

RUN = """
import pickle, sys
function, argument = pickle.load(open(sys.argv[1], "rb"))
print(function(argument))
print([name for name in sys.modules if name.startswith("dbt")])
"""


def wrapped(tls: Tls) -> str:
    import socket

    return type(tls.wrap_socket(socket.socket(), server_hostname="localhost", do_handshake_on_connect=False)).__name__


def is_token_provider(provider: TokenProvider) -> bool:
    from kafka.net.sasl.oauth import AbstractTokenProvider

    return isinstance(provider, AbstractTokenProvider)


@pytest.mark.parametrize(
    ("function", "argument", "result"),
    [(wrapped, Tls(), "SSLSocket"), (is_token_provider, TokenProvider("https://a/token"), "True")],
    ids=["tls", "token"],
)
def test_works_where_this_package_is_not_installed(
    tmp_path: Path, function: Callable[[Any], object], argument: object, result: str
) -> None:
    assert transaction.DEFAULTS  # importing the module registers tls, oauth and internals to be pickled by value
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    try:
        (tmp_path / "call").write_bytes(cloudpickle.dumps((function, argument)))
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    # -I: neither PYTHONPATH nor the current folder.
    command = [sys.executable, "-I", "-c", RUN, str(tmp_path / "call")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.stdout.splitlines() == [result, "[]"], done.stderr
