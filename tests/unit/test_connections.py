"""Ctrl-C reaches every thread, also one that has not run a statement yet."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from types import SimpleNamespace

import pytest
from dbt_common.exceptions import DbtRuntimeError

from dbt.adapters.upsert_kafka.connections import UpsertKafkaConnectionManager
from dbt.adapters.upsert_kafka.credentials import UpsertKafkaCredentials
from dbt.adapters.upsert_kafka.errors import STOPPED
from dbt.adapters.upsert_kafka.spark.handle import SessionHandle

CREDENTIALS = UpsertKafkaCredentials(schema="shop", bootstrap_servers="localhost:1")


def test_connection_cancelled_before_its_first_statement_runs_none() -> None:
    handle = SessionHandle(CREDENTIALS, "model.shop.orders")
    handle.cancel()
    with pytest.raises(DbtRuntimeError, match=STOPPED):
        handle.execute("SELECT 1")
    handle.close()


def test_node_that_a_thread_takes_up_after_ctrl_c_does_not_run() -> None:
    profile = SimpleNamespace(credentials=CREDENTIALS, query_comment=None)
    manager = UpsertKafkaConnectionManager(profile, get_context("spawn"))
    manager.set_connection_name("master")
    with ThreadPoolExecutor(1) as thread:
        thread.submit(manager.set_connection_name, "model.shop.first").result()
        assert manager.cancel_open() == ["model.shop.first"]
        with pytest.raises(DbtRuntimeError, match=STOPPED):
            thread.submit(manager.set_connection_name, "model.shop.second").result()
    # The thread that was interrupted cleans up.
    assert manager.set_connection_name("master").name == "master"
    manager.cleanup_all()
