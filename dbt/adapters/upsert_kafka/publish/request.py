"""What goes into a run of `upsert_kafka` or `kafka`, and what dbt gets back. Leaves the run itself to `pipeline` and `append`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dbt.adapters.contracts.connection import AdapterResponse

from dbt.adapters.upsert_kafka.catalog.views import Comments
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.kafka_client.topics import Topic, TopicSettings
from dbt.adapters.upsert_kafka.options import ModelOptions
from dbt.adapters.upsert_kafka.options.table import KAFKA
from dbt.adapters.upsert_kafka.publish import preview
from dbt.adapters.upsert_kafka.publish.contracts import Check
from dbt.adapters.upsert_kafka.publish.preview import Preview
from dbt.adapters.upsert_kafka.relation import UpsertKafkaRelation
from dbt.adapters.upsert_kafka.sinks import Delivery, GroupCommit
from dbt.adapters.upsert_kafka.sinks.partitioners import DEFAULT
from dbt.adapters.upsert_kafka.state.record import Owner, Run
from dbt.adapters.upsert_kafka.state.store import StateSettings

if TYPE_CHECKING:
    from dbt.adapters.upsert_kafka.publish.fingerprint import Fingerprint

EXAMPLES = 5
Mode = Literal["publish", "check", "preview"]
"""`publish` is a normal run. `check` is --empty and --sample: the topic is neither read nor written, the view is created.
`preview` is the dry run and the plan: the topic is read, and nothing is written."""


@dataclass(frozen=True)
class Request:
    """One run of one model."""

    model: str
    options: ModelOptions
    topic: str
    topic_settings: TopicSettings
    """What the topic is created with."""
    kafka: KafkaSettings
    relation: UpsertKafkaRelation
    owner: Owner
    """Of the topic: this model in this environment."""
    run: Run
    state: StateSettings = field(default_factory=StateSettings)
    """Where the state records are."""
    existing: UpsertKafkaRelation | None = None
    """The relation that has this name in the catalog now."""
    not_null: tuple[str, ...] = ()
    """Columns with a not_null constraint in the model's contract."""
    checks: tuple[Check, ...] = ()
    """The check constraints of the contract."""
    comments: Comments = field(default_factory=Comments)
    on_schema_change: str = "ignore"
    time_zone: str = "UTC"
    """Spark's session time zone."""
    full_refresh: bool = False
    mode: Mode = "publish"
    groups: tuple[GroupCommit, ...] = ()
    """Consumer groups that the transaction of an exactly-once run commits: this model alone consumes their sources."""
    registry: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The profile's `schema_registry`."""
    folder: Path | None = None
    """The project's folder: a custom partitioner is imported from it."""
    sql: str = ""
    """The compiled SELECT, or the code of a Python model."""
    on_configuration_change: str = "warn"
    """What to do if the topic's settings are not those of the model, see `configuration`."""
    readers: tuple[str, ...] | None = None
    """The principals that the model's `grants` give READ on the topic; None without grants."""
    other_topics: frozenset[str] = frozenset()
    """Those of the project's other models. Versions of a model have one owner and topics of their own."""
    samples: int = EXAMPLES
    """How many changes of each kind a preview shows."""
    report: Callable[[Preview], None] = preview.log
    """Takes the result of a preview."""
    planned: Fingerprint | None = None
    """What a plan promised: the run is refused if it would write anything else."""

    @property
    def transactional_id(self) -> str | None:
        """The id of an exactly-once run. All runs of a model share it: the next run aborts the transaction of a killed one."""
        exactly_once = self.options.sink_delivery_guarantee == "exactly-once"
        return f"{self.options.sink_transactional_id_prefix}.{self.topic}" if exactly_once else None

    @property
    def places_by_default(self) -> bool:
        """Whether Kafka's default partitioner places new keys."""
        return (self.options.sink_partitioner or DEFAULT) == DEFAULT and "partitioner.class" not in self.kafka.properties


@dataclass
class Delivered(AdapterResponse):
    """What run_results.json has about the messages of a run."""

    delivery: str = ""
    transactional_id: str | None = None
    records: int = 0
    """Messages written: one for each changed key, or two in update_mode='retract'."""
    bytes: int | None = None
    partitions_written: int = 0
    offsets: dict[str, list[int]] | None = None
    """First and last offset written, by partition. Keys are strings and values lists, because dbt's events are JSON."""
    groups: list[str] | None = None
    """Consumer groups of sources that the transaction committed."""
    dry_run: bool = False
    """Nothing was published, and the counts are those of a run that publishes."""


@dataclass
class Publication(Delivered):
    """The result of an `upsert_kafka` run. dbt prints the message; run_results.json has all fields."""

    topic: str = ""
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    unchanged: int = 0
    dropped: int = 0
    """Rows without a key that on_null_key='drop' left out."""
    foreign: int = 0
    """Keys of other writers that were not changed."""


@dataclass
class Appended(Delivered):
    """The result of a `kafka` run that appends. dbt prints the message; run_results.json has all fields."""

    topic: str = ""
    appended: int = 0
    dropped: int = 0
    """Rows without a key that on_null_key='drop' left out."""


def delivered(delivery: Delivery | None, request: Request) -> dict[str, Any]:
    """The fields of `Delivered` as keyword arguments, for a run that publishes."""
    groups = {"groups": [commit.group for commit in request.groups]} if request.groups else {}
    if delivery is None:
        return groups
    offsets = {str(partition): list(bounds) for partition, bounds in (delivery.offsets or {}).items()}
    return {**asdict(delivery), **groups, "partitions_written": len(offsets), "offsets": offsets}


def topic_settings(options: ModelOptions, defaults: Mapping[str, Any]) -> TopicSettings:
    """What a model asks for when its topic is created: its own options over the profile's `topic_defaults`."""
    return TopicSettings(
        partitions=defaults.get("partitions") if options.partitions is None else options.partitions,
        replication_factor=defaults.get("replication_factor")
        if options.replication_factor is None
        else options.replication_factor,
        config={str(k): str(v) for k, v in {**(defaults.get("config") or {}), **options.topic_config}.items()},
        compacted=options.materialization != KAFKA,
    )


def preview_of(request: Request, topic: Topic | None, state: Fingerprint) -> Preview:
    """A preview without counts: what is known about the topic."""
    return Preview(
        model=request.model,
        topic=request.topic,
        owner=str(request.owner),
        environment=request.owner.environment,
        fingerprint=state,
        creates=None if topic is not None else _creation(request.topic_settings),
        on_drift=request.on_configuration_change,
        readers=request.readers,
    )


def _creation(settings: TopicSettings) -> dict[str, str]:
    """The settings of a new topic. Those that nobody set are the broker's."""
    own = {"partitions": settings.partitions, "replication_factor": settings.replication_factor}
    found = {name: str(value) for name, value in own.items() if value is not None}
    return {**found, **({"cleanup.policy": "compact"} if settings.compacted else {}), **settings.config}
