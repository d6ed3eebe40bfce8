"""An OpenID Connect provider on loopback that says whatever a test wants it to say."""

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jwt

from contract_tests.oidc_issuer import CONFIGURATION, JWKS, ec_key, public, rsa_key
from control.delivery.dns_names import DnsNames
from control.delivery.guarded import Fetched
from control.delivery.receiver_urls import Reach
from control.sso.providers import GuardedProviders, ProviderUnavailable

CLIENT_ID = "menagerie-of-tests"
CLIENT_SECRET = "its:secret %"
Json = dict[str, Any]


class SsoProvider:
    """Codes are what tests put into `codes`: what the token endpoint answers for each, once.

    `changed` replaces members of its configuration. `asked` is what was asked for, in order, with
    the form and the headers of each.
    """

    def __init__(self) -> None:
        self.keys = [public(rsa_key(), "rsa-1"), public(ec_key(), "ec-1")]
        self.codes: dict[str, Callable[[Json], tuple[int, Any]]] = {}
        self.userinfo: Json = {}
        self.changed: Json = {}
        self.slow_s = 0.0
        self.asked: list[tuple[str, Json, Json]] = []
        provider = self

        class Answering(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer({})

            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                form = parse_qs(self.rfile.read(length).decode())
                self._answer({name: values[0] for name, values in form.items()})

            def _answer(self, form: Json) -> None:
                time.sleep(provider.slow_s)
                path = urlsplit(self.path).path
                provider.asked.append((path, form, dict(self.headers)))
                status, told = provider.told(path, form)
                content = told if isinstance(told, bytes) else json.dumps(told).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_words: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def configuration(self) -> Json:
        told = {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "userinfo_endpoint": f"{self.url}/userinfo",
            "jwks_uri": f"{self.url}{JWKS}",
            "response_types_supported": ["code"],
            "id_token_signing_alg_values_supported": ["RS256", "ES256", "HS256", "none"],
            **self.changed,
        }
        return {name: value for name, value in told.items() if value is not None}

    def told(self, path: str, form: Json) -> tuple[int, Any]:
        if path == CONFIGURATION:
            return 200, self.configuration
        if path == JWKS:
            return 200, {"keys": self.keys}
        if path == "/userinfo":
            return 200, self.userinfo
        found = self.codes.pop(form.get("code", ""), None) if path == "/token" else None
        return found(form) if found else (400, {"error": "invalid_grant"})

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    # Tokens of it.

    def claims(self, nonce: str, **changed: Any) -> Json:
        now = int(time.time())
        told = {
            "iss": self.url,
            "aud": CLIENT_ID,
            "sub": "ada",
            "nonce": nonce,
            "email": "ada@example.com",
            "email_verified": True,
            "name": "Ada",
            "iat": now,
            "exp": now + 300,
            **changed,
        }
        return {name: value for name, value in told.items() if value is not None}

    def signed(self, claims: Json, key: Any = None, alg: str = "RS256", **header: Any) -> str:
        """Signed as it is, whatever a library would say of such claims."""
        header = {"kid": "rsa-1", **header}
        header = {name: value for name, value in header.items() if value is not None}
        return jwt.api_jws.encode(json.dumps(claims).encode(), key or rsa_key(), alg, header)

    def gives(self, code: str, id_token: str, **more: Any) -> str:
        """The code is exchanged for this token."""
        answer = {"id_token": id_token, "access_token": "at-1", "token_type": "Bearer", **more}
        self.codes[code] = lambda _form: (200, answer)
        return code


class LoopbackProviders(GuardedProviders):
    """Asks providers on this machine, and nobody else: tests need no network."""

    def __init__(self) -> None:
        super().__init__(Reach(here=True), DnsNames)

    def fetch(self, url: str, **options: Any) -> Fetched:
        if not url.startswith("http://127.0.0.1:"):
            raise ProviderUnavailable("tests ask nobody outside")
        return super().fetch(url, **options)
