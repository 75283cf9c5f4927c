"""The dbt adapter for Kafka topics. Imports nothing: parts of it, such as the client of the resident dbt, must start quickly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dbt.adapters.upsert_kafka.plugin import Plugin

__all__ = ["Plugin"]


def __getattr__(name: str) -> Any:
    """Import the adapter when dbt takes `Plugin` from this package."""
    if name != "Plugin":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dbt.adapters.upsert_kafka import plugin

    return plugin.Plugin
