"""Owns Request: what came over the wire, decoded only where somebody looks."""

import random
import re
import time
from collections.abc import Iterator, Mapping, MutableMapping
from functools import cached_property
from typing import Any
from urllib.parse import unquote

Scope = MutableMapping[str, Any]

_REQUEST_ID = re.compile(rb"[A-Za-z0-9_-]{8,64}")
_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = [first + second for first in _CROCKFORD for second in _CROCKFORD]


class Headers(Mapping[str, str]):
    """Header fields by name, in any case; a field sent more than once is joined by commas."""

    __slots__ = ("_raw", "_single")

    def __init__(self, raw: list[tuple[bytes, bytes]]) -> None:
        self._raw = raw
        self._single = dict(raw)

    def raw(self, name: bytes) -> bytes | None:
        """The value's bytes; `name` in lower case."""
        value = self._single.get(name)
        if value is None or len(self._single) == len(self._raw):
            return value
        return b", ".join([value for key, value in self._raw if key == name])

    def __getitem__(self, name: str) -> str:
        value = self.raw(name.lower().encode("latin-1"))
        if value is None:
            raise KeyError(name)
        return value.decode("latin-1")

    def __iter__(self) -> Iterator[str]:
        return (name.decode("latin-1") for name in self._single)

    def __len__(self) -> int:
        return len(self._single)

    def __repr__(self) -> str:
        # Values may be credentials, and a repr ends up in logs.
        return f"<Headers {', '.join(self)}>"


class Request:
    """One HTTP request, without its body (which the Exchange holds)."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.headers = Headers(scope["headers"])

    @property
    def query_string(self) -> str:
        return str(self.scope["query_string"].decode("latin-1"))

    @property
    def client(self) -> str | None:
        """The peer's address as the server saw it; no forwarding header is believed here."""
        address = self.scope.get("client")
        return address[0] if address else None

    @property
    def scheme(self) -> str:
        return str(self.scope.get("scheme", "http"))

    @property
    def host(self) -> str:
        return self.headers.get("host", "")

    @cached_property
    def cookies(self) -> dict[str, str]:
        raw = (self.headers.raw(b"cookie") or b"").replace(b", ", b"; ").decode("latin-1")
        pairs = (part.partition("=") for part in raw.split(";"))
        return {name.strip(): unquote(value.strip().strip('"')) for name, _, value in pairs if name}

    def __repr__(self) -> str:
        return f"<Request {self.method} {self.path}>"


def request_id_of(headers: Headers) -> str:
    """The caller's `X-Request-Id` where it is well-formed, else a new `req_` and ULID."""
    given = headers.raw(b"x-request-id")
    if given is not None and _REQUEST_ID.fullmatch(given):
        return given.decode("ascii")
    return new_request_id()


def new_request_id() -> str:
    # A ULID: 48 bits of milliseconds and 80 random bits, in 26 characters of 5 bits, two at a
    # time, which need not be secret. Written out because it is made for every request, and the
    # library takes 6 µs.
    bits = (int(time.time() * 1000) << 80) | random.getrandbits(80)
    return "req_" + "".join([_PAIRS[bits >> shift & 1023] for shift in _SHIFTS])


_SHIFTS = tuple(range(120, -1, -10))
