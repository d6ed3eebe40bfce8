"""Requests of the corpus as bytes: a first line, fields, an empty line and a body.

What an attack does not write is added: the version, a host, the owner's key and the length. In
`<<…>>` stands what cannot be written down:

- `<<TEXT*COUNT>>` is a text so often;
- `<<gzip:COUNT>>` so many zeros, compressed;
- `<<key:search>>` and `<<key:admin>>` the values of an instance's default keys, and
  `<<uid:search>>` and `<<uid:admin>>` their uids;
- `<<jwt:ALGORITHM:SECRET:CLAIMS>>` a token; the SECRET may be `key:search`, or nothing.
"""

import contextlib
import gzip
import json
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPResponse
from typing import Final

import jwt

WAIT_S: Final = 60.0
ANSWER_MAX: Final = 100_000
_GAP: Final = re.compile(rb"<<(.+?)>>", re.DOTALL)
_DEFAULTS: Final = {"Default Search API Key": "search", "Default Admin API Key": "admin"}


class RefusedError(OSError):
    """An answer of 400 or more, or none."""


@dataclass
class Requests:
    """`connect` opens a connection; `key` is the owner's."""

    connect: Callable[[], socket.socket]
    key: str
    host: str = "instance"
    _keys: dict[str, str] = field(default_factory=dict)

    def ask(self, statement: str) -> str:
        """What is answered, further answers on the connection too. Raises RefusedError."""
        status, text = self.answer(statement)
        if status >= 400:
            raise RefusedError(text)
        return text

    def answer(self, statement: str) -> tuple[int, str]:
        content = self._bytes(statement)
        try:
            with self.connect() as connection:
                connection.settimeout(WAIT_S)
                # It may be refused before it was all read.
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    connection.sendall(content)
                response = HTTPResponse(connection, method=statement.split(" ", 1)[0])
                response.begin()
                head = str(response.headers)
                return response.status, (head + response.read(ANSWER_MAX).decode(errors="replace"))
        except (HTTPException, ConnectionError, ValueError) as error:
            raise RefusedError(type(error).__name__) from error

    def _bytes(self, statement: str) -> bytes:
        head, _, body = statement.partition("\n\n")
        first, *fields = head.splitlines()
        names = {each.partition(":")[0].strip().lower() for each in fields}
        content = self._filled(body)
        if " HTTP/" not in first:
            first += " HTTP/1.1"
        added = {"Host": self.host, "Authorization": f"Bearer {self.key}", "Connection": "close"}
        if body:
            added["Content-Type"] = "application/json"
        if body and "transfer-encoding" not in names:
            added["Content-Length"] = str(len(content))
        fields += [f"{name}: {value}" for name, value in added.items() if name.lower() not in names]
        # A field without a value is left out: `Authorization:` is nobody.
        kept = [each for each in fields if each.partition(":")[2].strip()]
        return b"\r\n".join(self._filled(each) for each in (first, *kept)) + b"\r\n\r\n" + content

    def _filled(self, text: str) -> bytes:
        return _GAP.sub(lambda gap: self._made(gap[1].decode()), text.encode("utf-8"))

    def _made(self, words: str) -> bytes:
        kind, _, rest = words.partition(":")
        if kind == "gzip":
            return gzip.compress(b"0" * int(rest))
        if kind in {"key", "uid"}:
            return self._known()[words].encode()
        if kind == "jwt":
            return self._token(*rest.split(":", 1)).encode()
        repeated, _, count = words.rpartition("*")
        return repeated.encode() * int(count)

    def _token(self, algorithm: str, rest: str) -> str:
        secret, _, claims = rest.partition(":{")
        known = self._known()
        secret = known["uid:search"] if secret == "UID" else secret
        filled = json.loads("{" + claims.replace("UID", known["uid:search"]))
        return jwt.encode(filled, known.get(secret, secret), algorithm)

    def _known(self) -> Mapping[str, str]:
        if not self._keys:
            text = self.ask("GET /keys?limit=1000")
            for each in json.loads(text[text.index("\n{") :])["results"]:
                if name := _DEFAULTS.get(each["name"]):
                    self._keys |= {f"key:{name}": each["key"], f"uid:{name}": each["uid"]}
        return self._keys
