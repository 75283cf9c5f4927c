"""Leases: who is refused while a stream runs, and when a lease counts no more."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from dbt.adapters.upsert_kafka.errors import GuardError
from dbt.adapters.upsert_kafka.state import lease
from dbt.adapters.upsert_kafka.state.record import Lease, Stream


def _stream(held: Lease | None) -> Stream:
    return Stream({}, "query", 1, {}, {}, False, lease=held)


def _elsewhere(seconds: float = 30) -> Lease:
    return Lease("another", "db7", 4711, "another machine", "2026-01-01 00:00:00Z", time.time() + seconds)


def test_running_stream_is_named() -> None:
    with pytest.raises(GuardError, match=r"running stream \(process 4711 on db7, started 2026-01-01 00:00:00Z\)\. Nothing was"):
        lease.check("orders", "shop.orders", _stream(_elsewhere()))


def test_own_expired_and_missing_leases_do_not_count() -> None:
    for held in (None, lease.own(), _elsewhere(-1)):
        assert lease.holder(_stream(held)) is None
    assert lease.holder(None) is None


@pytest.mark.skipif(not lease.own().machine, reason="only Linux tells the machine of a process")
def test_process_that_has_ended_on_this_machine_holds_no_lease() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        held = replace(lease.own(), id="another", process=process.pid)
        assert lease.holder(_stream(held)) == held
        process.kill()
        # Its parent, this process, has not noticed the end yet.
        while lease.holder(_stream(held)) is not None:
            time.sleep(0.01)
    assert lease.holder(_stream(held)) is None
    # The number of this process was used by another one before.
    assert lease.holder(_stream(replace(held, process=os.getpid()))) is None
