"""The topics of a project's models: no two models have the same, and a source that reads one of them gets its full name.

The full name has the prefix and suffix of the profile. Leaves to the macro generate_topic_name the name without them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dbt.adapters.upsert_kafka.errors import OptionsError
from dbt.adapters.upsert_kafka.options import ModelOptions
from dbt.adapters.upsert_kafka.options.table import SINKS

Node = Mapping[str, Any]


@dataclass(frozen=True)
class ModelTopics:
    """The topics of all models that write to one, without prefix and suffix."""

    by_model: Mapping[str, tuple[str | None, str]]
    """By the model's unique_id: the model's own bootstrap_servers, and the topic."""

    @classmethod
    def of(
        cls, nodes: Mapping[str, Node], parse: Callable[[Node], ModelOptions], name_of: Callable[[str | None, Node], str]
    ) -> ModelTopics:
        """Read them from the graph.

        Args:
            nodes: dbt's `graph.nodes`.
            parse: returns the options of a node.
            name_of: the macro generate_topic_name.
        """
        found = {}
        for unique_id, node in nodes.items():
            if node["resource_type"] != "model" or node["config"]["materialized"] not in SINKS:
                continue
            try:
                options = parse(node)
            except OptionsError:
                # The model itself fails with this error when it runs.
                continue
            found[unique_id] = (options.bootstrap_servers, str(name_of(options.topic, node)).strip())
        return cls(found)

    def check(self, unique_id: str) -> None:
        """Refuse a model whose topic is also the topic of another model: each would delete the other's rows.

        Raises:
            OptionsError: names both models.
        """
        mine = self.by_model.get(unique_id)
        others = sorted(_name(other) for other, topic in self.by_model.items() if topic == mine and other != unique_id)
        if mine is not None and others:
            raise OptionsError(
                f"model {_name(unique_id)}: topic '{mine[1]}' is also the topic of model {', '.join(others)}. "
                "Nothing was written. Set another `topic` for one of them"
            )

    def others(self, unique_id: str, full_name: Callable[[str], str]) -> frozenset[str]:
        """The full names of the topics of all other models.

        Args:
            full_name: adds the profile's prefix and suffix.
        """
        return frozenset(full_name(topic) for other, (_, topic) in self.by_model.items() if other != unique_id)

    def full_source(self, source: ModelOptions, full_name: Callable[[str], str]) -> ModelOptions:
        """The options of a source, with full names of the topics that models of the project write to. A pattern stays as it is.

        Args:
            full_name: adds the profile's prefix and suffix.
        """
        known = set(self.by_model.values())
        names = [full_name(topic) if (source.bootstrap_servers, topic) in known else topic for topic in source.topics]
        if tuple(names) == source.topics:
            return source
        return replace(with_full_subjects(source, full_name), topic=";".join(names))


def with_full_subjects(options: ModelOptions, full_name: Callable[[str], str]) -> ModelOptions:
    """The options with full names of the registry subjects that the model names; other subjects follow the topic's name."""

    def renamed(side: dict[str, Any]) -> dict[str, Any]:
        return {**side, "subject": full_name(side["subject"])} if side.get("subject") else side

    return replace(
        options,
        key_format_options=renamed(options.key_format_options),
        value_format_options=renamed(options.value_format_options),
    )


def _name(unique_id: str) -> str:
    """The model's name, with its version if it has one."""
    return unique_id.split(".", 2)[-1]
