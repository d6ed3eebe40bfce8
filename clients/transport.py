"""HTTP connections: certificates always verified, and `*.localhost` reached wherever it is."""

import contextlib
import functools
import logging
import os
import ssl
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx

from clients import private_files
from clients.errors import ConfigurationError, MalformedAnswer
from clients.hosts import LOOPBACK, is_local

# It logs the address of every request, and a one-time URL is a secret.
logging.getLogger("httpx").setLevel(logging.WARNING)

# By which OpenSSL is told of other roots.
_ROOTS: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR")
USER_AGENT: Final = "menagerie-client/1.0.0"


class LocalhostTransport(httpx.BaseTransport):
    """Connects to 127.0.0.1 for hosts under `.localhost`, which many resolvers do not know.

    SNI, certificate check and Host header keep the real name. Each such host has connections of
    its own: a shared pool would hand one instance's connection to another, since both have the
    same address.
    """

    def __init__(self, context: ssl.SSLContext | bool) -> None:
        self._context = context
        self._plain = httpx.HTTPTransport(verify=context)
        self._by_host: dict[str, httpx.HTTPTransport] = {}

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        host = request.url.host
        if not host.lower().rstrip(".").endswith(".localhost"):
            return self._plain.handle_request(request)
        if host not in self._by_host:
            self._by_host[host] = httpx.HTTPTransport(verify=self._context)
        moved = httpx.Request(
            request.method,
            request.url.copy_with(host=LOOPBACK),
            headers=request.headers,
            stream=request.stream,
            extensions={**request.extensions, "sni_hostname": host},
        )
        return self._by_host[host].handle_request(moved)

    def close(self) -> None:
        for transport in (self._plain, *self._by_host.values()):
            transport.close()


def transport_for_localhost(ca_file: str | None = None) -> httpx.BaseTransport:
    """Answer a transport that verifies by this CA and finds `*.localhost`, for any httpx.Client."""
    return LocalhostTransport(trust(ca_file))


def trust(ca_file: str | None = None, ca_pem: str | None = None) -> ssl.SSLContext:
    """Answer a verifying context: the system's roots and what is given on top of them."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        if ca_file:
            context.load_verify_locations(cafile=str(Path(ca_file).expanduser()))
        if ca_pem:
            context.load_verify_locations(cadata=ca_pem)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"cannot use the certificates of {ca_file or 'ca.pem'}: {error}"
        ) from error
    return context


def _shared_trust(ca_file: str | None, ca_pem: str | None) -> ssl.SSLContext:
    """The same for HTTP, which changes none: the system's roots take 25 ms of a CPU to load."""
    return _of(ca_file, _state(ca_file), ca_pem, *map(os.environ.get, _ROOTS))


@functools.lru_cache(maxsize=8)
def _of(
    ca_file: str | None, _state: object, ca_pem: str | None, *_roots: str | None
) -> ssl.SSLContext:
    return trust(ca_file, ca_pem)


def _state(ca_file: str | None) -> tuple[int, int, int] | None:
    """Other than before where the file was written or replaced since; `trust` tells what fails."""
    try:
        found = Path(ca_file or "").expanduser().stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


@dataclass(frozen=True)
class Authorities:
    """Whom to trust on top of the system's authorities: a file's, and those of a cell."""

    ca_file: str | None = None
    ca_pem: str | None = None

    def context(self) -> ssl.SSLContext:
        return trust(self.ca_file, self.ca_pem)

    @contextlib.contextmanager
    def as_file(self) -> Iterator[str]:
        """Yield one file with all of them, the system's too, for programs that take only that."""
        system = ssl.get_default_verify_paths().cafile
        files = [one for one in (system, self.ca_file) if one]
        try:
            texts = [Path(one).expanduser().read_text(encoding="utf-8") for one in files]
        except OSError as error:
            raise ConfigurationError(f"cannot use the certificates: {error}") from error
        with tempfile.TemporaryDirectory(prefix="menagerie-") as folder:
            path = Path(folder) / "ca.pem"
            private_files.write(path, "\n".join([*texts, self.ca_pem or ""]))
            yield str(path)


def open_http(
    url: str,
    *,
    ca_file: str | None = None,
    ca_pem: str | None = None,
    timeout_s: float | None = 30.0,
) -> httpx.Client:
    """Answer a client for the server of this URL. It follows no redirects."""
    try:
        parts = urlsplit(url)
        usable = bool(httpx.URL(url).host) and parts.scheme in {"http", "https"}
    except (ValueError, httpx.InvalidURL):
        usable = False
    if not usable or not parts.hostname:
        raise ConfigurationError(f"not an http or https address: {url!r}")
    local = is_local(parts.hostname)
    context: ssl.SSLContext | bool = True
    if parts.scheme == "https":
        context = _shared_trust(ca_file, ca_pem)
    elif local:
        # The system's authorities take as long to load as a command's requests. It trusts nobody.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return httpx.Client(
        # A proxy is for the world outside: it could not reach this machine's loopback.
        transport=LocalhostTransport(context) if local else None,
        verify=context,
        trust_env=not local,
        timeout=httpx.Timeout(timeout_s, connect=10.0),
        headers={"User-Agent": USER_AGENT, "Accept-Encoding": "identity"},
        event_hooks={"response": [_refuse_compressed]},
    )


def _refuse_compressed(response: httpx.Response) -> None:
    """Before its body is read: a few bytes, compressed several times over, fill any memory."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise MalformedAnswer(
            f"{response.request.url.host} sent a compressed answer (Content-Encoding:"
            f" {encoding[:50]!r}) although none was asked for; a proxy in front of it may do so"
        )
