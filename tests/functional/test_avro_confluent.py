"""avro-confluent with a real registry: registered schemas, what consumers read, and refusals that write nothing."""

from __future__ import annotations

import base64
import io
import json
import ssl
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import fastavro
import pytest
import requests
from pyspark.sql import SparkSession

from dbt.adapters.upsert_kafka.errors import GuardError, OptionsError, SchemaRegistryError
from tests.certificates import Certificates
from tests.tables import Table


class RegistryTable(Table):
    """A model whose key and value schemas are in a registry."""

    def __init__(self, spark: SparkSession, broker: str, topic: str, schema: str, registry: str) -> None:
        super().__init__(spark, broker, topic, schema)
        self.registry = registry
        self.options |= {"format": "avro-confluent", "avro_confluent_url": registry}

    def versions(self, subject: str) -> list[int]:
        answer = requests.get(f"{self.registry}/subjects/{subject}/versions", timeout=30)
        return list(answer.json()) if answer.ok else []

    def consumed(self) -> list[tuple[Any, Any]]:
        """Keys and values as a consumer reads them with the registry's schemas."""
        return [(self._deserialized(record.key), self._deserialized(record.value)) for record in self.records()]

    def _deserialized(self, payload: bytes | None) -> Any:
        if payload is None:
            return None
        assert payload[0] == 0
        answer = requests.get(f"{self.registry}/schemas/ids/{int.from_bytes(payload[1:5], 'big')}", timeout=30)
        stream = io.BytesIO(payload[5:])
        row = fastavro.schemaless_reader(stream, json.loads(answer.json()["schema"]), None)
        assert stream.read() == b""
        return row


class SecuredProxy:
    """A proxy in front of the registry that demands TLS and a password."""

    def __init__(self, registry: str, folder: Path) -> None:
        self.certificates = Certificates(folder)
        self.certificates.authority()
        self.certificates.signed("registry")
        self.user_info = "dbt:s3cret-of-the-registry"
        expected = f"Basic {base64.b64encode(self.user_info.encode()).decode()}"

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.headers.get("Authorization") != expected:
                    self._answer(401, b'{"error_code": 401, "message": "Unauthorized"}')
                    return
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                headers = {"Content-Type": self.headers.get("Content-Type", "application/json")}
                passed = requests.request(self.command, registry + self.path, data=body, headers=headers, timeout=30)
                self._answer(passed.status_code, passed.content)

            do_POST = do_GET

            def _answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: Any) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificates["registry.pem"])
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self._server.server_port}"
        Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def model(spark: SparkSession, broker: str, topic_name: str, schema_name: str, registry: str) -> RegistryTable:
    return RegistryTable(spark, broker, topic_name, schema_name, registry)


def test_consumer_reads_keys_values_and_tombstones_with_the_registry(model: RegistryTable) -> None:
    model.publish([(1, "ann"), (2, None)])
    assert sorted(model.consumed(), key=str) == [({"id": 1}, {"id": 1, "name": "ann"}), ({"id": 2}, {"id": 2, "name": None})]
    assert model.versions(f"{model.topic}-key") == model.versions(f"{model.topic}-value") == [1]

    assert model.publish([(1, "ann")], value_fields_include="EXCEPT_KEY").deleted == 1
    assert ({"id": 2}, None) in model.consumed() and ({"id": 1}, {"name": "ann"}) in model.consumed()
    assert model.view() == [(1, "ann")]


def test_subjects_of_the_model_are_used(model: RegistryTable) -> None:
    subjects = {"key_avro_confluent_subject": f"k/{model.topic}", "value_avro_confluent_subject": f"v {model.topic}"}
    model.publish([(1, "ann")], **subjects)
    assert model.versions(requests.utils.quote(f"k/{model.topic}", safe="")) == model.versions(f"v {model.topic}") == [1]
    assert model.versions(f"{model.topic}-value") == []
    assert model.view() == [(1, "ann")]


def test_new_column_registers_a_version_and_the_view_reads_both(model: RegistryTable) -> None:
    model.publish([(1, "ann"), (2, "bob")], missing_keys="keep")
    model.publish([(3, "cyd", 7)], "id int, name string, age int", missing_keys="keep")
    assert model.versions(f"{model.topic}-value") == [1, 2]
    assert model.view() == [(1, "ann", None), (2, "bob", None), (3, "cyd", 7)]


def test_incompatible_schema_is_reported_and_nothing_is_written(model: RegistryTable) -> None:
    model.publish([(1, "ann")])
    before, subject = model.end(), f"{model.topic}-value"
    answer = requests.put(f"{model.registry}/config/{subject}", json={"compatibility": "BACKWARD"}, timeout=30)
    assert answer.ok, answer.text

    for mode, error in (("publish", SchemaRegistryError), ("preview", GuardError)):
        with pytest.raises(error, match=f"subject '{subject}' refuses the schema of these columns") as refusal:
            model.publish([(1, 5)], "id int, name int", mode=mode)
        assert "Exception" not in str(refusal.value)
    assert model.end() == before and model.versions(subject) == [1]
    assert model.view() == [(1, "ann")]


@pytest.mark.parametrize("mode", ["check", "preview"])
def test_run_that_writes_nothing_registers_nothing(model: RegistryTable, mode: str) -> None:
    model.publish([(1, "ann")], mode=mode)
    assert model.versions(f"{model.topic}-value") == model.versions(f"{model.topic}-key") == []


def test_given_schema_is_registered_with_its_names_and_documentation(model: RegistryTable) -> None:
    schema = {
        "type": "record",
        "name": "User",
        "namespace": "shop",
        "doc": "One row of users",
        "fields": [{"name": "id", "type": "int"}, {"name": "name", "type": ["null", "string"], "default": None}],
    }
    model.publish([(1, "ann")], value_avro_confluent_schema=json.dumps(schema))
    latest = requests.get(f"{model.registry}/subjects/{model.topic}-value/versions/latest", timeout=30).json()
    assert json.loads(latest["schema"])["doc"] == "One row of users"
    assert model.consumed() == [({"id": 1}, {"id": 1, "name": "ann"})]

    before = model.end()
    schema["fields"] = schema["fields"][:1]
    with pytest.raises(OptionsError, match="value_avro_confluent_schema does not describe the columns of the value"):
        model.publish([(1, "bob")], value_avro_confluent_schema=json.dumps(schema))
    assert model.end() == before


def test_unreachable_registry_is_reported_before_the_topic_is_created(model: RegistryTable) -> None:
    with pytest.raises(SchemaRegistryError, match=r"Schema registry http://127.0.0.1:1 did not answer \(.*refused.*\): check"):
        model.publish([(1, "ann")], avro_confluent_url="http://127.0.0.1:1")
    assert model.end() == {}


def test_registry_with_tls_and_password_is_used_and_errors_hide_the_password(model: RegistryTable, tmp_path: Path) -> None:
    proxy = SecuredProxy(model.registry, tmp_path)
    del model.options["avro_confluent_url"]
    try:
        with pytest.raises(SchemaRegistryError, match=r"did not answer .*ssl_truststore_location"):
            model.publish([(1, "ann")], registry={"url": proxy.url, "basic-auth.user-info": proxy.user_info})
        trusted = {"url": proxy.url, "ssl.truststore.location": str(proxy.certificates["ca.pem"])}
        for wrong in ({}, {"basic-auth.user-info": "dbt:wr0ng-password"}):
            with pytest.raises(SchemaRegistryError, match="basic_auth_user_info") as refusal:
                model.publish([(1, "ann")], registry={**trusted, **wrong})
            assert "wr0ng" not in str(refusal.value)
        assert model.end() == {}

        model.publish([(1, "ann")], registry={**trusted, "basic-auth.user-info": proxy.user_info})
        assert model.consumed() == [({"id": 1}, {"id": 1, "name": "ann"})]
        assert model.view() == [(1, "ann")]
    finally:
        proxy.close()
