"""An issuer of tokens on loopback, for tests of whoever trusts one."""

import base64
import contextlib
import functools
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from control.workflows.roles.issuer_documents import HttpIssuers, IssuerUnavailable

JWKS = "/keys"
CONFIGURATION = "/.well-known/openid-configuration"
NEVER = "http://127.0.0.1:9"
"""Where nobody answers."""


@functools.cache
def rsa_key(name: str = "rsa", bits: int = 2048) -> rsa.RSAPrivateKey:
    """The same for each name: they take long to make."""
    assert name
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


@functools.cache
def ec_key(name: str = "ec") -> ec.EllipticCurvePrivateKey:
    assert name
    return ec.generate_private_key(ec.SECP256R1())


def public(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey, kid: str) -> dict[str, Any]:
    """As an issuer publishes it."""
    if isinstance(key, rsa.RSAPrivateKey):
        told = RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
    else:
        told = ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
    return {**told, "kid": kid, "use": "sig"}


class OidcIssuer:
    """Publishes `keys`; `answers` are what it says at a path instead: a status, headers, a body.

    A body can be a function that writes for as long as it likes.
    """

    def __init__(self) -> None:
        self.keys = [public(rsa_key(), "rsa-1"), public(ec_key(), "ec-1")]
        self.answers: dict[str, tuple[int, dict[str, str], Any]] = {}
        self.asked: list[str] = []
        issuer = self

        class Answering(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked.append(self.path)
                status, headers, body = issuer.answers.get(self.path) or issuer.told(self.path)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                with contextlib.suppress(OSError):
                    if callable(body):
                        body(self.wfile)
                    else:
                        self.wfile.write(body)

            def log_message(self, *_words: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def told(self, path: str) -> tuple[int, dict[str, str], bytes]:
        known: dict[str, Any] = {
            CONFIGURATION: {"issuer": self.url, "jwks_uri": f"{self.url}{JWKS}"},
            JWKS: {"keys": self.keys},
        }
        if path not in known:
            return 404, {}, b""
        return 200, {"Content-Type": "application/json"}, json.dumps(known[path]).encode()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    # Tokens of it.

    def claims(self, at: float | None = None, **changed: Any) -> dict[str, Any]:
        now = int(time.time() if at is None else at)
        told = {
            "iss": self.url,
            "aud": "https://api.example.com",
            "sub": "repo:acme/shop:ref:refs/heads/main",
            "iat": now,
            "nbf": now,
            "exp": now + 300,
            **changed,
        }
        return {name: value for name, value in told.items() if value is not None}

    def token(self, at: float | None = None, **changed: Any) -> str:
        """Signed as it is, whatever a library would say of such claims."""
        payload = json.dumps(self.claims(at, **changed)).encode()
        return jwt.api_jws.encode(payload, rsa_key(), "RS256", {"kid": "rsa-1"})


def segment(value: Any) -> str:
    """A part of a token, of JSON or of bytes."""
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


class LoopbackIssuers(HttpIssuers):
    """Asks issuers on this machine, and nobody else: tests need no network."""

    def keys(self, issuer: str) -> list[dict[str, Any]]:
        if not issuer.startswith("http://127.0.0.1:"):
            raise IssuerUnavailable("tests ask nobody outside")
        return super().keys(issuer)
