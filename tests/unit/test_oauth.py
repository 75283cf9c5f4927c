"""Tokens: asked for once, asked for again when they grow old, and never told to anybody who reads an error."""

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

from dbt.adapters.upsert_kafka.oauth import TokenProvider

CREDENTIALS = base64.b64encode(b"dbt%2Fclient:s3%3Acret").decode()


class Endpoint(HTTPServer):
    """A token endpoint that gives numbered tokens to one client."""

    lifetime = 3600.0
    given = 0
    asked: dict[str, list[str]]
    answer: bytes | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/token"


class Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.asked = parse_qs(body)
        if self.headers["Authorization"] != f"Basic {CREDENTIALS}":
            self.send_error(401)
            return
        self.server.given += 1
        token = {"access_token": f"token-{self.server.given}", "expires_in": self.server.lifetime}
        answer = self.server.answer or json.dumps(token).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *arguments: object) -> None:
        """Not on the tests' output."""


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    server = Endpoint(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_token_is_asked_for_once_and_goes_with_its_client_to_spark_s_workers(endpoint: Endpoint) -> None:
    provider = TokenProvider(endpoint.url, "dbt/client", "s3:cret", "kafka")
    assert [provider.token(), provider.token()] == ["token-1", "token-1"]
    assert endpoint.asked == {"grant_type": ["client_credentials"], "scope": ["kafka"]}
    assert pickle.loads(pickle.dumps(provider)).token() == "token-1"
    assert "s3:cret" not in repr(provider) and "token-1" not in repr(provider)


def test_a_token_that_is_old_is_asked_for_again(endpoint: Endpoint) -> None:
    endpoint.lifetime = 0.0
    provider = TokenProvider(endpoint.url, "dbt/client", "s3:cret")
    assert [provider.token(), provider.token()] == ["token-1", "token-2"]


def test_what_the_endpoint_refuses_is_told_without_the_secret(endpoint: Endpoint) -> None:
    with pytest.raises(SaslAuthenticationFailedError, match=r"no token for client 'dbt/client' .*: HTTP 401") as refusal:
        TokenProvider(endpoint.url, "dbt/client", "s3cret").token()
    assert "s3cret" not in str(refusal.value)


@pytest.mark.parametrize("answer", [b"{}", b"[]", b"no json, token-1", b'{"access_token": "token-1", "expires_in": "soon"}'])
def test_an_answer_that_is_no_token_is_told_without_its_text(endpoint: Endpoint, answer: bytes) -> None:
    endpoint.answer = answer
    with pytest.raises(SaslAuthenticationFailedError) as refusal:
        TokenProvider(endpoint.url, "dbt/client", "s3:cret").token()
    assert "token-1" not in str(refusal.value)


def test_an_endpoint_that_is_not_there_is_told() -> None:
    with pytest.raises(SaslAuthenticationFailedError, match="Connection refused"):
        TokenProvider("http://127.0.0.1:1/token", "dbt", "s3cret").token()
