"""The modules that the adapter imports when a command needs them: kafka-python and pyspark take longer to import than the rest.

`dbt parse`, `ls` and the like need none of them. A command that starts Spark imports them while the JVM starts, and the resident
dbt before it forks.
"""

from __future__ import annotations

import threading
from importlib import import_module

from dbt.adapters.events.logging import AdapterLogger

logger = AdapterLogger("upsert_kafka")

MODULES = tuple(
    f"{__package__}.{name}"
    for name in (
        "publish.pipeline",
        "publish.append",
        "spark.handle",
        "spark.python_models",
        "kafka_client.acls",
        "kafka_client.kafka_python",
        "kafka_client.reach",
        "catalog.restore",
        "catalog.shared_reads",
        "source.source",
        "streaming.streams_of",
        "operations.documentation",
        "operations.drop_environment",
        "operations.list_topics",
        "operations.orphans",
        "operations.owners",
        "operations.recorded",
        "operations.transactional_groups",
        "debug",
    )
)
"""With what they import, all that the adapter's methods import. None imports pandas or pyarrow."""


def begin() -> None:
    """Import them in the background. An error is raised where the module is needed."""

    def run() -> None:
        try:
            for name in MODULES:
                import_module(name)
        except Exception as error:  # whatever a module raises
            logger.debug(f"not imported early: {error!r}")

    threading.Thread(target=run, name="imports", daemon=True).start()
