"""SQL on its way to psql, which runs no command of its own that is in it."""

import re
import secrets
from typing import IO, Final

HEAD_BYTES: Final = 8192
TAIL_BYTES: Final = 1024
# Dumps made since August 2025 restrict psql by themselves, with a key that they hold; nested it is
# an error, and what holds the key can lift it.
_OWN: Final = re.compile(rb"\A((?:--[^\n]*\n|[ \t\r]*\n)*)\\restrict[ \t]+([0-9A-Za-z]+)\r?\n")


class Restricted:
    """Reads as the file does, after a restriction of which nobody else has the key."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        self._held = source.read(HEAD_BYTES)
        self._lifting: re.Pattern[bytes] | None = None
        if own := _OWN.match(self._held):
            self._held = own[1] + self._held[own.end() :]
            self._lifting = re.compile(rb"(?:\A|(?<=\n))\\unrestrict[ \t]+" + own[2] + rb"\s*\Z")
        self._held = b"\\restrict %s\n%s" % (secrets.token_hex(32).encode(), self._held)

    def read(self, size_bytes: int) -> bytes:
        """Less than that, and nothing at the end; the last lines only once it has come."""
        while content := self._source.read(size_bytes):
            self._held += content
            if len(self._held) > TAIL_BYTES:
                told, self._held = self._held[:-TAIL_BYTES], self._held[-TAIL_BYTES:]
                return told
        told, self._held = self._held, b""
        return told if self._lifting is None else self._lifting.sub(b"", told)
