"""Tokens for SASL/OAUTHBEARER as Java's client gets them: from a token endpoint by client credentials, or from a file.

Runs in Spark's Python workers too, where this package may not be installed: it imports nothing of its neighbours.
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
from kafka.net.sasl.oauth import AbstractTokenProvider

TIMEOUT_SECONDS = 30
LIFETIME_SECONDS = 300
"""Of a token whose endpoint does not say."""
FRESH = 0.8
"""Part of its lifetime for which a token is used again, as Java's client does."""


@dataclass
class TokenProvider(AbstractTokenProvider):
    """One client of one token endpoint; asks again when the token grows old."""

    url: str
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""
    _token: str = field(default="", repr=False)
    _until: float = 0.0

    def token(self) -> str:
        if urlsplit(self.url).scheme == "file":
            with open(unquote(urlsplit(self.url).path)) as file:
                return file.read().strip()
        if time.monotonic() >= self._until:
            self._token, lifetime = self._ask()
            self._until = time.monotonic() + FRESH * lifetime
        return self._token

    def extensions(self) -> dict[str, str]:
        return {}

    def _ask(self) -> tuple[str, float]:
        scope = {"scope": self.scope} if self.scope else {}
        body = urlencode({"grant_type": "client_credentials", **scope}).encode()
        user_info = f"{quote(self.client_id, safe='')}:{quote(self.client_secret, safe='')}"
        authorization = "Basic " + base64.b64encode(user_info.encode()).decode()
        headers = {"Authorization": authorization, "Accept": "application/json"}
        request = urllib.request.Request(self.url, body, headers)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
                answer = json.load(response)
            return str(answer["access_token"]), float(answer.get("expires_in", LIFETIME_SECONDS))
        except urllib.error.HTTPError as error:
            reason = f"HTTP {error.code}"
        except (OSError, ValueError, KeyError, TypeError) as error:
            # Not its text: an answer that is no token may still hold one.
            reason = type(error).__name__ if not isinstance(error, urllib.error.URLError) else str(error.reason)
        raise SaslAuthenticationFailedError(f"no token for client '{self.client_id}' from {self.url}: {reason}")
