"""Tokens for SASL/OAUTHBEARER, from the same places as in Java's client: a token endpoint with client credentials, or a file.

`MskTokenProvider` signs tokens for Amazon MSK, where Java's client uses the mechanism AWS_MSK_IAM instead.

Spark workers get this module by value, because this package may not be installed there: it imports no neighbour but `internals`.
"""

from __future__ import annotations

import base64
import json
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from urllib.parse import quote, unquote, urlencode, urlsplit

from kafka.errors import SaslAuthenticationFailedError

from dbt.adapters.upsert_kafka.kafka_client.internals import AbstractTokenProvider

TIMEOUT_SECONDS = 30
DEFAULT_LIFETIME_SECONDS = 300
"""The lifetime of a token if the endpoint's answer has no expires_in."""
REFRESH_FACTOR = 0.8
"""A token is reused for this part of its lifetime, as in Java's client (sasl.login.refresh.window.factor)."""


@dataclass
class TokenProvider(AbstractTokenProvider):
    """Gets tokens for one client from one endpoint, and a new one before the last one expires."""

    url: str
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""
    _token: str = field(default="", repr=False)
    _refresh_at: float = 0.0

    def token(self) -> str:
        if urlsplit(self.url).scheme == "file":
            with open(unquote(urlsplit(self.url).path)) as file:
                return file.read().strip()
        if time.monotonic() >= self._refresh_at:
            self._token, lifetime = self._request()
            self._refresh_at = time.monotonic() + REFRESH_FACTOR * lifetime
        return self._token

    def extensions(self) -> dict[str, str]:
        return {}

    def _request(self) -> tuple[str, float]:
        scope = {"scope": self.scope} if self.scope else {}
        body = urlencode({"grant_type": "client_credentials", **scope}).encode()
        user_info = f"{quote(self.client_id, safe='')}:{quote(self.client_secret, safe='')}"
        authorization = "Basic " + base64.b64encode(user_info.encode()).decode()
        headers = {"Authorization": authorization, "Accept": "application/json"}
        request = urllib.request.Request(self.url, body, headers)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
                answer = json.load(response)
            return str(answer["access_token"]), float(answer.get("expires_in", DEFAULT_LIFETIME_SECONDS))
        except urllib.error.HTTPError as error:
            reason = f"HTTP {error.code}"
        except (OSError, ValueError, KeyError, TypeError) as error:
            # The error's text is not shown: it may contain a part of the answer, and so a token.
            reason = type(error).__name__ if not isinstance(error, urllib.error.URLError) else str(error.reason)
        raise SaslAuthenticationFailedError(f"no token for client '{self.client_id}' from {self.url}: {reason}")


@dataclass
class MskTokenProvider(AbstractTokenProvider):
    """Signs tokens for one region with AWS credentials: a role, a profile, or what AWS's default chain finds."""

    region: str
    role: str = ""
    session: str = ""
    profile: str = ""
    _token: str = field(default="", repr=False)
    _refresh_at: float = 0.0

    def token(self) -> str:
        if time.monotonic() >= self._refresh_at:
            # Here, because only users of MSK install it (the extra [aws]), and every Spark worker needs it too.
            from aws_msk_iam_sasl_signer import MSKAuthTokenProvider as signer

            try:
                if self.role:
                    token, expires_ms = signer.generate_auth_token_from_role_arn(self.region, self.role, self.session or "dbt")
                elif self.profile:
                    token, expires_ms = signer.generate_auth_token_from_profile(self.region, self.profile)
                else:
                    token, expires_ms = signer.generate_auth_token(self.region)
            except Exception as error:  # botocore's and the signer's errors have no common base
                raise SaslAuthenticationFailedError(f"AWS credentials for MSK in {self.region}: {error}") from error
            self._token = token
            self._refresh_at = time.monotonic() + REFRESH_FACTOR * max(0.0, expires_ms / 1000 - time.time())
        return self._token

    def extensions(self) -> dict[str, str]:
        return {}
