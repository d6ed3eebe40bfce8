"""Servers with real sockets and real TLS, which fail on demand."""

import json
import socket
import ssl
import sys
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from ulid import ULID

DROP: Final = "drop the connection"

Scripted = tuple[int, dict[str, str], Any] | str


@dataclass(frozen=True)
class Seen:
    method: str
    path: str
    query: dict[str, str]
    headers: Mapping[str, str]
    body: Any
    sni: str | None = None
    connection: tuple[str, int] | None = None

    @property
    def token(self) -> str | None:
        return self.headers.get("Authorization")


def new_id(prefix: str) -> str:
    return f"{prefix}_{ULID()}"


def problem(
    status: int, title: str, detail: str, **members: Any
) -> tuple[int, dict[str, str], Any]:
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail}
    body |= {"request_id": "req_01JD7QK3V8Y2M4N6P8R0S2T4V6", **members}
    return status, {"Content-Type": "application/problem+json"}, body


class Server:
    """An HTTP server on a free port. `routes` answers what no script does."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.seen: list[Seen] = []
        self.crashes: list[str] = []
        self._scripts: dict[tuple[str, str], deque[Scripted]] = {}
        self._names: dict[int, str | None] = {}
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                server.answer(self)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any  # noqa: N815  http.server's names

            def log_message(self, *args: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._http.handle_error = self._note_crash  # type: ignore[assignment]
        if context is not None:
            context.sni_callback = self._note_name
            self._http.socket = context.wrap_socket(
                self._http.socket, server_side=True, do_handshake_on_connect=False
            )
        self.port = self._http.server_address[1]
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.005}
        )
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()
        assert not self.crashes

    def _note_crash(self, *_: Any) -> None:
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):  # clients hang up in these tests
            self.crashes.append(repr(error))

    def script(self, method: str, path: str, *answers: Scripted) -> None:
        self._scripts.setdefault((method, path), deque()).extend(answers)

    def _note_name(self, connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        self._names[id(connection)] = name

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(handler.path)
        raw = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        seen = Seen(
            handler.command,
            parts.path,
            dict(parse_qsl(parts.query)),
            dict(handler.headers.items()),
            _read(raw, handler.headers.get_content_type()),
            self._names.get(id(handler.connection)),
            handler.client_address,
        )
        self.seen.append(seen)
        script = self._scripts.get((seen.method, seen.path))
        scripted = script.popleft() if script else self.routes(seen)
        if isinstance(scripted, str):
            handler.connection.shutdown(socket.SHUT_RDWR)
            handler.close_connection = True
            return
        status, headers, body = scripted
        sent = (
            b""
            if body is None
            else body.encode()
            if isinstance(body, str)
            else json.dumps(body).encode()
        )
        handler.send_response(status)
        for name, value in ({"Content-Type": "application/json"} | headers).items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(sent)))
        handler.end_headers()
        handler.wfile.write(sent)

    def routes(self, seen: Seen) -> Scripted:
        return problem(404, "Not Found", f"nothing at {seen.path}")

    def asked(self, method: str, ending: str) -> list[Seen]:
        return [one for one in self.seen if one.method == method and one.path.endswith(ending)]


def _read(raw: bytes, media_type: str) -> Any:
    if media_type == "application/octet-stream":
        return raw
    return json.loads(raw) if raw else None


class Authority:
    """A certificate authority in a folder, with one certificate for its servers."""

    def __init__(self, folder: Path, *names: str) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        root = self._certificate("test root", key.public_key(), key, "test root", None)
        leaf_key = ec.generate_private_key(ec.SECP256R1())
        leaf = self._certificate(names[0], leaf_key.public_key(), key, "test root", names)
        self.ca_file = folder / "ca.pem"
        self.ca_file.write_bytes(root.public_bytes(serialization.Encoding.PEM))
        chain = folder / "server.pem"
        private = leaf_key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        chain.write_bytes(leaf.public_bytes(serialization.Encoding.PEM) + private)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(chain)

    @staticmethod
    def _certificate(
        subject: str,
        public_key: ec.EllipticCurvePublicKey,
        signer: ec.EllipticCurvePrivateKey,
        issuer: str,
        names: tuple[str, ...] | None,
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=names is None, path_length=None), critical=True)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()),
                critical=False,
            )
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
        )
        if names:
            known = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
            builder = builder.add_extension(known, critical=False)
        else:
            usage = x509.KeyUsage(
                digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False,
                key_encipherment=False, data_encipherment=False, key_agreement=False,
                encipher_only=False, decipher_only=False,
            )  # fmt: skip
            builder = builder.add_extension(usage, critical=True)
        return builder.sign(signer, hashes.SHA256())
