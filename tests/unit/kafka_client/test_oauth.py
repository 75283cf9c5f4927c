"""Tokens are reused until they expire, and errors contain neither tokens nor secrets."""

from __future__ import annotations

import base64
import json
import pickle
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs

import pytest
from kafka.errors import SaslAuthenticationFailedError

from dbt.adapters.upsert_kafka.kafka_client.oauth import TokenProvider

CREDENTIALS = base64.b64encode(b"dbt%2Fclient:s3%3Acret").decode()


class Endpoint(HTTPServer):
    """A token endpoint that issues numbered tokens to one client."""

    lifetime = 3600.0
    issued = 0
    received: dict[str, list[str]]
    answer: bytes | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/token"


class Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.received = parse_qs(body)
        if self.headers["Authorization"] != f"Basic {CREDENTIALS}":
            self.send_error(401)
            return
        self.server.issued += 1
        token = {"access_token": f"token-{self.server.issued}", "expires_in": self.server.lifetime}
        answer = self.server.answer or json.dumps(token).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing."""


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    server = Endpoint(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_token_is_reused_and_pickled_with_its_provider(endpoint: Endpoint) -> None:
    provider = TokenProvider(endpoint.url, "dbt/client", "s3:cret", "kafka")
    assert [provider.token(), provider.token()] == ["token-1", "token-1"]
    assert endpoint.received == {"grant_type": ["client_credentials"], "scope": ["kafka"]}
    assert pickle.loads(pickle.dumps(provider)).token() == "token-1"
    assert "s3:cret" not in repr(provider) and "token-1" not in repr(provider)


def test_expired_token_is_requested_again(endpoint: Endpoint) -> None:
    endpoint.lifetime = 0.0
    provider = TokenProvider(endpoint.url, "dbt/client", "s3:cret")
    assert [provider.token(), provider.token()] == ["token-1", "token-2"]


def test_refusal_is_reported_without_the_secret(endpoint: Endpoint) -> None:
    with pytest.raises(SaslAuthenticationFailedError, match=r"no token for client 'dbt/client' .*: HTTP 401") as refusal:
        TokenProvider(endpoint.url, "dbt/client", "s3cret").token()
    assert "s3cret" not in str(refusal.value)


@pytest.mark.parametrize("answer", [b"{}", b"[]", b"no json, token-1", b'{"access_token": "token-1", "expires_in": "soon"}'])
def test_invalid_answer_is_reported_without_its_text(endpoint: Endpoint, answer: bytes) -> None:
    endpoint.answer = answer
    with pytest.raises(SaslAuthenticationFailedError) as refusal:
        TokenProvider(endpoint.url, "dbt/client", "s3:cret").token()
    assert "token-1" not in str(refusal.value)


def test_unreachable_endpoint_is_reported() -> None:
    with pytest.raises(SaslAuthenticationFailedError, match="Connection refused"):
        TokenProvider("http://127.0.0.1:1/token", "dbt", "s3cret").token()
