"""The properties of Kafka's clients: names, types and values of Kafka 4.1, and which client takes which property.

Once Spark runs, `use_java_client` limits the names to those of the Kafka client in Spark's jars. Checks values before a client
starts. Leaves to `kafka_client.clients` how properties are passed to Spark and kafka-python.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

# name, clients (P producer, C consumer, A admin), kind, values: the public ConfigDefs of kafka-clients 4.1.1.
_CATALOGUE = """
acks P text -1|0|1|all
allow.auto.create.topics C boolean
auto.commit.interval.ms C int
auto.offset.reset C text
batch.size P int
bootstrap.controllers A text
bootstrap.servers PCA text
buffer.memory P int
check.crcs C boolean
client.dns.lookup PCA text resolve_canonical_bootstrap_servers_only|use_all_dns_ips
client.id PCA text
client.rack C text
compression.gzip.level P int
compression.lz4.level P int
compression.type P text gzip|lz4|none|snappy|zstd
compression.zstd.level P int
connections.max.idle.ms PCA int
default.api.timeout.ms CA int
delivery.timeout.ms P int
enable.auto.commit C boolean
enable.idempotence P boolean
enable.metrics.push PCA boolean
exclude.internal.topics C boolean
fetch.max.bytes C int
fetch.max.wait.ms C int
fetch.min.bytes C int
group.id C text
group.instance.id C text
group.protocol C text CLASSIC|CONSUMER
group.remote.assignor C text
heartbeat.interval.ms C int
interceptor.classes PC text
isolation.level C text read_committed|read_uncommitted
key.deserializer C text
key.serializer P text
linger.ms P int
max.block.ms P int
max.in.flight.requests.per.connection P int
max.partition.fetch.bytes C int
max.poll.interval.ms C int
max.poll.records C int
max.request.size P int
metadata.max.age.ms PCA int
metadata.max.idle.ms P int
metadata.recovery.rebootstrap.trigger.ms PCA int
metadata.recovery.strategy PCA text NONE|REBOOTSTRAP
metric.reporters PCA text
metrics.num.samples PCA int
metrics.recording.level PCA text DEBUG|INFO|TRACE
metrics.sample.window.ms PCA int
partition.assignment.strategy C text
partitioner.adaptive.partitioning.enable P boolean
partitioner.availability.timeout.ms P int
partitioner.class P text
partitioner.ignore.keys P boolean
receive.buffer.bytes PCA int
reconnect.backoff.max.ms PCA int
reconnect.backoff.ms PCA int
request.timeout.ms PCA int
retries PA int
retry.backoff.max.ms PCA int
retry.backoff.ms PCA int
sasl.client.callback.handler.class PCA text
sasl.jaas.config PCA secret
sasl.kerberos.kinit.cmd PCA text
sasl.kerberos.min.time.before.relogin PCA int
sasl.kerberos.service.name PCA text
sasl.kerberos.ticket.renew.jitter PCA number
sasl.kerberos.ticket.renew.window.factor PCA number
sasl.login.callback.handler.class PCA text
sasl.login.class PCA text
sasl.login.connect.timeout.ms PCA int
sasl.login.read.timeout.ms PCA int
sasl.login.refresh.buffer.seconds PCA int
sasl.login.refresh.min.period.seconds PCA int
sasl.login.refresh.window.factor PCA number
sasl.login.refresh.window.jitter PCA number
sasl.login.retry.backoff.max.ms PCA int
sasl.login.retry.backoff.ms PCA int
sasl.mechanism PCA text
sasl.oauthbearer.assertion.algorithm PCA text ES256|RS256
sasl.oauthbearer.assertion.claim.aud PCA text
sasl.oauthbearer.assertion.claim.exp.seconds PCA int
sasl.oauthbearer.assertion.claim.iss PCA text
sasl.oauthbearer.assertion.claim.jti.include PCA boolean
sasl.oauthbearer.assertion.claim.nbf.seconds PCA int
sasl.oauthbearer.assertion.claim.sub PCA text
sasl.oauthbearer.assertion.file PCA text
sasl.oauthbearer.assertion.private.key.file PCA text
sasl.oauthbearer.assertion.private.key.passphrase PCA secret
sasl.oauthbearer.assertion.template.file PCA text
sasl.oauthbearer.client.credentials.client.id PCA text
sasl.oauthbearer.client.credentials.client.secret PCA secret
sasl.oauthbearer.clock.skew.seconds PCA int
sasl.oauthbearer.expected.audience PCA text
sasl.oauthbearer.expected.issuer PCA text
sasl.oauthbearer.header.urlencode PCA boolean
sasl.oauthbearer.jwks.endpoint.refresh.ms PCA int
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms PCA int
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms PCA int
sasl.oauthbearer.jwks.endpoint.url PCA text
sasl.oauthbearer.jwt.retriever.class PCA text
sasl.oauthbearer.jwt.validator.class PCA text
sasl.oauthbearer.scope PCA text
sasl.oauthbearer.scope.claim.name PCA text
sasl.oauthbearer.sub.claim.name PCA text
sasl.oauthbearer.token.endpoint.url PCA text
security.protocol PCA text PLAINTEXT|SASL_PLAINTEXT|SASL_SSL|SSL
security.providers PCA text
send.buffer.bytes PCA int
session.timeout.ms C int
share.acknowledgement.mode C text explicit|implicit
socket.connection.setup.timeout.max.ms PCA int
socket.connection.setup.timeout.ms PCA int
ssl.cipher.suites PCA text
ssl.enabled.protocols PCA text
ssl.endpoint.identification.algorithm PCA text
ssl.engine.factory.class PCA text
ssl.key.password PCA secret
ssl.keymanager.algorithm PCA text
ssl.keystore.certificate.chain PCA secret
ssl.keystore.key PCA secret
ssl.keystore.location PCA text
ssl.keystore.password PCA secret
ssl.keystore.type PCA text
ssl.protocol PCA text
ssl.provider PCA text
ssl.secure.random.implementation PCA text
ssl.trustmanager.algorithm PCA text
ssl.truststore.certificates PCA secret
ssl.truststore.location PCA text
ssl.truststore.password PCA secret
ssl.truststore.type PCA text
transaction.timeout.ms P int
transaction.two.phase.commit.enable P boolean
transactional.id P text
value.deserializer C text
value.serializer P text
"""

_TOPIC_CONFIGS = """
cleanup.policy compression.gzip.level compression.lz4.level compression.type compression.zstd.level
delete.retention.ms file.delete.delay.ms flush.messages flush.ms follower.replication.throttled.replicas
index.interval.bytes leader.replication.throttled.replicas local.retention.bytes local.retention.ms
max.compaction.lag.ms max.message.bytes message.timestamp.after.max.ms message.timestamp.before.max.ms
message.timestamp.type min.cleanable.dirty.ratio min.compaction.lag.ms min.insync.replicas preallocate
remote.log.copy.disable remote.log.delete.on.disable remote.storage.enable retention.bytes retention.ms
segment.bytes segment.index.bytes segment.jitter.ms segment.ms unclean.leader.election.enable
"""

MSK_IAM = "AWS_MSK_IAM"
"""The value of sasl.mechanism for IAM in Amazon MSK."""

REFUSED = {
    "key.serializer": "key_format decides how keys are written",
    "value.serializer": "value_format decides how values are written",
    "key.deserializer": "key_format decides how keys are read",
    "value.deserializer": "value_format decides how values are read",
    "transactional.id": "the adapter sets it; use sink_transactional_id_prefix",
    "enable.auto.commit": "a run reads fixed offsets and commits none",
    "partitioner.ignore.keys": "it would spread the records of a key over partitions; sink_partitioner chooses partitions",
    "interceptor.classes": "Spark's Kafka source does not support interceptors",
}
OWNED_UNDER_EXACTLY_ONCE = {
    "acks": "a transaction needs acks=all",
    "enable.idempotence": "a transaction is always idempotent",
    "partitioner.class": "Java's producer does not write the transaction; use sink_partitioner_class",
}

_OLDER_WAYS = {
    "sasl.oauthbearer.client.credentials.": "set clientId and clientSecret in sasl.jaas.config",
    "sasl.oauthbearer.scope": "set scope in sasl.jaas.config",
}

_SECRET = re.compile(r"pass|secret|jaas|token|credential|user.?info|api.?key|private|(^|[._-])key$|certificate", re.IGNORECASE)


@dataclass(frozen=True)
class Property:
    """One property, as in Kafka's ConfigDef."""

    name: str
    clients: str
    kind: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class ClientProperties:
    """Properties by the client that takes them."""

    producer: dict[str, str]
    consumer: dict[str, str]
    admin: dict[str, str]


def _property(name: str, clients: str, kind: str, values: str = "") -> Property:
    return Property(name, clients, kind, tuple(values.split("|")) if values else ())


PROPERTIES = {line.split()[0]: _property(*line.split()) for line in _CATALOGUE.strip().splitlines()}
TOPIC_CONFIGS = frozenset(_TOPIC_CONFIGS.split())
_BY_UNDERSCORES = {re.sub(r"[.-]", "_", name): name for name in PROPERTIES}


def split(properties: Mapping[str, str]) -> ClientProperties:
    """The properties that each client takes. A property that no client defines, for example a plugin's, goes to all clients."""

    def taken_by(client: str) -> dict[str, str]:
        return {k: v for k, v in properties.items() if k not in PROPERTIES or client in PROPERTIES[k].clients}

    return ClientProperties(producer=taken_by("P"), consumer=taken_by("C"), admin=taken_by("A"))


@dataclass(frozen=True)
class JavaClient:
    """The Kafka client in Spark's jars."""

    version: str
    names: frozenset[str]
    """The properties of its producer, consumer and admin client."""


_java_client: JavaClient | None = None


def use_java_client(client: JavaClient | None) -> None:
    """Check names against this client from now on; None for the names of Kafka 4.1."""
    global _java_client
    _java_client = client


def is_known(name: str) -> bool:
    """Whether any Kafka client defines the property, or it configures a config provider."""
    names = PROPERTIES if _java_client is None else _java_client.names
    return name in names or name == "config.providers" or name.startswith("config.providers.")


def newer_than_client(name: str) -> str | None:
    """Why a property of Kafka can't be set with the client in Spark's jars; None if it can.

    A name that Kafka does not define may belong to a plugin: that is no reason.
    """
    if _java_client is None or name not in PROPERTIES or name in _java_client.names:
        return None
    instead = next((text for prefix, text in _OLDER_WAYS.items() if name.startswith(prefix)), "remove it")
    return f"can't be set: the Kafka client {_java_client.version} of this Spark does not have this property; {instead}"


def nearest(name: str, cutoff: float = 0.7) -> str | None:
    """The known property with the most similar name."""
    return next(iter(get_close_matches(name, PROPERTIES, n=1, cutoff=cutoff)), None)


def misspelt(name: str) -> str | None:
    """The property that is meant by a name that no client defines; None for other names, which may be those of plugins.

    >>> misspelt("securty.protocol"), misspelt("security.protocol"), misspelt("my.plugin.url")
    ('security.protocol', None, None)
    """
    return None if is_known(name) else nearest(name, cutoff=0.9)


def from_underscores(name: str) -> str:
    """The property whose dots were written as underscores: `max_request_size` is `max.request.size`."""
    return name if name in PROPERTIES else _BY_UNDERSCORES.get(name, name.replace("_", "."))


def is_secret(name: str) -> bool:
    """Whether the property's value must not be shown. Also true for names that only look like a secret's."""
    return holds_secret(name) or bool(_SECRET.search(name))


def holds_secret(name: str) -> bool:
    """Whether the property's value is a secret: by Kafka's type, or by its name if Kafka does not define the property."""
    return PROPERTIES[name].kind == "secret" if name in PROPERTIES else bool(_SECRET.search(name))


def problem(name: str, value: str) -> str | None:
    """What the value must be, if it is wrong; None if it is right or a reference to a config provider."""
    known = PROPERTIES.get(name)
    if known is None or "${" in value:
        return None
    if known.kind == "int" and not re.fullmatch(r"[+-]?\d+", value):
        return "must be a whole number"
    if known.kind == "number" and not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", value):
        return "must be a number"
    if known.kind == "boolean" and value.lower() not in ("true", "false"):
        return "must be true or false"
    if known.values and value.lower() not in {v.lower() for v in known.values}:
        return f"must be one of {', '.join(known.values)}"
    return None
