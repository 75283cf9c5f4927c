"""dbt commands on a secured broker, and no secret in their output, files and command lines."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kafka.admin import ResourceType
from pyspark.sql import SparkSession

from dbt.adapters.upsert_kafka.credentials import DEFAULT_STATE_TOPIC
from dbt.adapters.upsert_kafka.errors import KafkaUnreachableError, OptionsError
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from tests.dbt_project import QUICK_JVM, Outcome, Project
from tests.faults.scene import descendants
from tests.secured import CLIENT, OAUTH, PASSWORD, PLAIN, SecuredCluster, export
from tests.services import read_topic
from tests.tables import Table, json_key, json_value

SECRET = "n0b0dy-may-read-this"
JAAS_VARIABLE, KEY_VARIABLE = "DBT_ENV_SECRET_JAAS", "DBT_ENV_SECRET_KEY_PASSWORD"
MODELS = {
    "models/users.sql": "{{ config(materialized='upsert_kafka', unique_key='id') }} select 1 as id, 'a' as name",
    "models/orders.sql": (
        "{{ config(materialized='upsert_kafka', unique_key='id', sink_delivery_guarantee='exactly-once') }} "
        "select id, name from {{ ref('users') }}"
    ),
    "models/seen.sql": (
        "{{ config(materialized='kafka_source', topic=target.schema ~ '.orders') }} "
        "-- depends_on: {{ ref('orders') }}\nselect * from {{ kafka_topic() }}"
    ),
    "models/schema.yml": """
models:
- name: users
  columns: [{name: id, data_tests: [unique]}]
- name: seen
  columns: [{name: id, data_type: int, data_tests: [not_null]}, {name: name, data_type: string}]
""",
    "macros/show_options.sql": (
        "{% macro show_options() %}{% if execute %}{% for name in ['users', 'orders', 'seen'] %}"
        "{% set table = target.schema ~ '__kafka.' ~ name ~ '__topic' %}"
        "{{ log(run_query('show create table ' ~ table).columns[0].values()[0], info=true) }}"
        "{% endfor %}"
        "{{ log(run_query(\"select '${env:DBT_UPSERT_KAFKA_SECRET_SASL_JAAS_CONFIG}'\").columns[0].values()[0], info=true) }}"
        "{% endif %}{% endmacro %}"
    ),
}


class SecuredProject(Project):
    """A project whose secrets are only in the environment of its commands. All temporary files are in `temp`."""

    secrets: dict[str, str]

    @property
    def temp(self) -> Path:
        return self.folder / "temp"

    def environment(self) -> dict[str, str]:
        return {**super().environment(), **self.secrets, "TMPDIR": str(self.temp)}

    def run_watched(self, *arguments: str) -> tuple[Outcome, set[bytes]]:
        """Run a command; returns its outcome and the command lines of all its processes."""
        process = self.start(*arguments)
        seen = {" ".join(self.command(*arguments)).encode()}
        while process.poll() is None:
            seen |= set(descendants(process.pid).values())
            time.sleep(0.5)
        output, _ = process.communicate()
        return Outcome(process.returncode, output), seen


def make(folder: Path, servers: str, schema: str, kafka: dict[str, str], secrets: dict[str, str], **spark: str) -> SecuredProject:
    temp = folder / "temp"
    temp.mkdir(parents=True)
    project = SecuredProject(
        folder, servers, schema, kafka=kafka, spark={"spark.local.dir": str(temp), **spark}, topic_defaults={"partitions": 2}
    )
    project.secrets = secrets
    project.write(
        {**MODELS, "dbt_project.yml": (folder / "dbt_project.yml").read_text() + "on-run-end: '{{ show_options() }}'\n"}
    )
    return project


def allow_all(cluster: SecuredCluster, user: str, schema: str) -> None:
    names = (f"{schema}.users", f"{schema}.orders", DEFAULT_STATE_TOPIC)
    topics = {(ResourceType.TOPIC, name): "CREATE READ WRITE" for name in names}
    cluster.allow(user, {**topics, (ResourceType.TRANSACTIONAL_ID, f"dbt-upsert-kafka.{schema}.orders"): "WRITE"})


def files_with(secret: str, folder: Path) -> Iterator[Path]:
    texts = [secret.encode(), secret.encode("utf-16-be"), secret.encode("utf-16-le")]
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink() and any(text in path.read_bytes() for text in texts):
            yield path


@pytest.mark.nightly
def test_scram_on_a_spark_cluster_leaves_no_secret(secured: SecuredCluster, tmp_path: Path, schema_name: str) -> None:
    secured.add_user("dbt", SECRET)
    allow_all(secured, "dbt", schema_name)
    kafka = secured.sasl("dbt", SECRET)
    secrets = {JAAS_VARIABLE: kafka["sasl.jaas.config"]}
    kafka |= {"sasl.jaas.config": f"{{{{ env_var('{JAAS_VARIABLE}') }}}}"}
    events = tmp_path / "project" / "temp" / "events"
    # An executor in a separate process, as on a cluster, and an event log.
    cluster = {"spark.executor.memory": "1g", "spark.executor.extraJavaOptions": QUICK_JVM}
    log = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": events.as_uri(), "spark.eventLog.compress": "false"}
    project = make(tmp_path / "project", secured.sasl_servers, schema_name, kafka, secrets, **cluster, **log)
    project.profile["master"] = "local-cluster[1,2,1024]"
    project.save_profile()
    events.mkdir()

    outcome, command_lines = project.run_watched("run")
    assert outcome.exit_code == 0, outcome.output
    assert "${env:DBT_UPSERT_KAFKA_SECRET_SASL_JAAS_CONFIG}" in outcome.output
    assert outcome.output.count("CREATE TABLE") == 3 and "kafka.sasl.jaas.config" in outcome.output
    later = project.succeed("test")
    assert [r.value for r in read_topic(secured.admin_servers, f"{schema_name}.orders")] == [json_value((1, "a"))]

    assert not any(SECRET.encode() in line for line in command_lines)
    assert any(b"CoarseGrainedExecutorBackend" in line for line in command_lines)
    assert SECRET not in outcome.output + later.output
    assert list(events.iterdir()) and (project.folder / "logs" / "dbt.log").exists()
    assert list(files_with(SECRET, tmp_path)) == []
    assert stat.S_IMODE((project.folder / ".upsert_kafka").stat().st_mode) == 0o700


def test_mutual_tls_works_and_leaves_no_secret(secured: SecuredCluster, tmp_path: Path, schema_name: str) -> None:
    allow_all(secured, CLIENT, schema_name)
    kafka = secured.mutual("PKCS12")
    secrets = {KEY_VARIABLE: PASSWORD}
    kafka |= {name: f"{{{{ env_var('{KEY_VARIABLE}') }}}}" for name in kafka if name.endswith("password")}
    project = make(tmp_path / "project", secured.mutual_servers, schema_name, kafka, secrets)
    outcome, command_lines = project.run_watched("build")
    assert outcome.exit_code == 0, outcome.output
    assert [r.key for r in read_topic(secured.admin_servers, f"{schema_name}.orders")] == [json_key(1)]
    assert not any(PASSWORD.encode() in line for line in command_lines)
    assert list(files_with(PASSWORD, tmp_path)) == []


LOGINS: dict[str, Callable[[SecuredCluster], tuple[str, dict[str, str]]]] = {
    "PLAIN": lambda c: (c.sasl_servers, c.sasl(*PLAIN, "PLAIN")),
    "OAUTHBEARER": lambda c: (c.sasl_servers, c.oauth()),
    "JKS": lambda c: (c.mutual_servers, c.mutual("JKS")),
    "inline PEM": lambda c: (
        c.mutual_servers,
        {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": c.certificates["ca.pem"].read_text(),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": c.certificates[f"{CLIENT}.crt"].read_text(),
            "ssl.keystore.key": c.certificates[f"{CLIENT}.key"].read_text(),
        },
    ),
}


@pytest.mark.parametrize("login", LOGINS)
def test_login_works_for_every_client(
    spark: SparkSession, secured: SecuredCluster, topic_name: str, schema_name: str, login: str
) -> None:
    table = Table(spark, secured.admin_servers, topic_name, schema_name)
    table.secured_at, kafka = LOGINS[login](secured)
    # Spark reuses a producer for equal settings, in which passwords and keys are only references.
    table.kafka = {**kafka, "client.id": login}
    user = {"PLAIN": PLAIN[0], "OAUTHBEARER": OAUTH}.get(login, CLIENT)
    secured.allow(user, {(ResourceType.TOPIC, name): "CREATE READ WRITE" for name in (topic_name, DEFAULT_STATE_TOPIC)})
    secured.allow(user, {(ResourceType.TRANSACTIONAL_ID, f"dbt-upsert-kafka.{topic_name}"): "WRITE"})
    export(spark, table.kafka)
    assert table.publish([(1, "a")]).inserted == 1
    assert table.publish([(1, "b")], sink_delivery_guarantee="exactly-once").updated == 1
    assert table.view() == [(1, "b")]


def without(properties: dict[str, str], part: str) -> dict[str, str]:
    return {name: value for name, value in properties.items() if part not in name}


# A broker that refuses a login closes the connection at once, so its answer may be lost.
REFUSED: dict[str, Callable[[SecuredCluster], tuple[str, dict[str, str]]]] = {
    r"user 'dbt' .*\(SCRAM-SHA-512\), .*password: check .*sasl": lambda c: (c.sasl_servers, c.sasl("dbt", SECRET + "!")),
    r"the broker .*user 'plainly' .*\(PLAIN\)": lambda c: (c.sasl_servers, c.sasl(PLAIN[0], SECRET, "PLAIN")),
    "its certificate is not trusted": lambda c: (c.mutual_servers, without(c.mutual(), "truststore")),
    "the broker refused the client's certificate": lambda c: (c.mutual_servers, without(c.mutual(), "keystore")),
    "the TLS handshake failed": lambda c: (c.mutual_servers, {**c.mutual(), "ssl.enabled.protocols": "TLSv1.1"}),
}


@pytest.mark.parametrize("line", REFUSED)
def test_refused_login_is_reported_with_the_reason(secured: SecuredCluster, line: str) -> None:
    servers, properties = REFUSED[line](secured)
    with pytest.raises(KafkaUnreachableError) as refusal, KafkaSettings(servers, properties).admin():
        pass
    message = str(refusal.value.msg)
    assert message.startswith(f"Kafka at '{servers}': ") and message.endswith("in the kafka: block of your profile")
    assert re.search(line, message) and "\n" not in message and SECRET not in message


UNUSABLE = {
    "ssl.keystore.location is '/nowhere', which can't be read": {"ssl.keystore.location": "/nowhere"},
    "Java can't open as JKS": {
        "ssl.keystore.type": "JKS",
        "ssl.keystore.location": "client.jks",
        "ssl.keystore.password": SECRET,
    },
    "is a PEM file: set ssl.keystore.type to PEM": {"ssl.keystore.type": "JKS"},
    "no cipher can be selected": {"ssl.cipher.suites": "TLS_NONE_WITH_SUCH"},
    "ssl.* can't be used": {"ssl.enabled.protocols": "SSLv2"},
}


@pytest.mark.parametrize("line", UNUSABLE)
def test_unusable_certificate_is_reported(secured: SecuredCluster, line: str) -> None:
    changed = {k: v.replace("client.jks", str(secured.certificates[f"{CLIENT}.jks"])) for k, v in UNUSABLE[line].items()}
    with pytest.raises(OptionsError) as refusal:
        KafkaSettings(secured.mutual_servers, {**secured.mutual(), **changed}).python_client()
    assert line in str(refusal.value) and SECRET not in str(refusal.value)


def test_java_s_names_of_protocols_and_ciphers_are_understood(secured: SecuredCluster) -> None:
    suite = {"ssl.enabled.protocols": "TLSv1.2", "ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"}
    arguments = KafkaSettings(secured.mutual_servers, {**secured.mutual(), **suite}).python_client()
    assert arguments["ssl_context"].ciphers == "ECDHE-RSA-AES256-GCM-SHA384"
    with KafkaSettings(secured.mutual_servers, {**secured.mutual(), **suite}).admin() as admin:
        assert admin.describe_cluster()["brokers"]


def test_environment_of_the_tests_contains_no_secret() -> None:
    assert not any(SECRET in value or PASSWORD in value for value in os.environ.values())
