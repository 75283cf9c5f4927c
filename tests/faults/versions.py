"""The versions of Kafka's transaction protocol: the clusters on which fault tests and the simulator's model are checked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any

import pytest

from tests.matrix.rows import OLDEST_BROKER
from tests.matrix.zookeeper import ZooKeeperCluster
from tests.services import Cluster

DEFAULT = "4.1"
VERSIONS: dict[str, Callable[..., Any]] = {
    # Kafka 4.1 with its default, transaction.version=2.
    DEFAULT: Cluster,
    "4.1-transaction.version=1": partial(Cluster, features={"transaction.version": 1}),
    "4.1-transaction.version=0": partial(Cluster, features={"transaction.version": 0}),
    "3.9": partial(Cluster, version="3.9.1"),
    # The oldest that is supported. It has no transaction.version and does not verify batches.
    "2.8": partial(ZooKeeperCluster, OLDEST_BROKER),
}


def nightly_unless(names: Collection[str], versions: Iterable[str]) -> list[Any]:
    """Parameters of a test: those versions that are not among the names run with `make nightly` only."""
    return [name if name in names else pytest.param(name, marks=pytest.mark.nightly) for name in versions]
