"""Speaking HTTP by the byte: what is sent is no request, and what comes back must be answers."""

import contextlib
import json
import re
import socket
from dataclasses import dataclass
from typing import Any

TIMEOUT_S = 60
_STATUS = re.compile(r"HTTP/1\.1 ([1-5][0-9][0-9]) [A-Z][A-Za-z -]*")
_FIELD = re.compile(r"([a-z0-9-]+): ([\x20-\x7e]*)")

Address = tuple[str, int] | str


@dataclass(frozen=True)
class Answer:
    """`fields` by their names in lower case."""

    status: int
    fields: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)


def connect(address: Address) -> socket.socket:
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    client = socket.socket(family)
    client.settimeout(TIMEOUT_S)
    client.connect(address)
    return client


def said(address: Address, *parts: bytes, end: bool = False) -> bytes:
    """All that is answered until the server hangs up; with `end` we stop speaking first."""
    with connect(address) as client:
        # Whoever is refused while still speaking may find nobody listening any more.
        with contextlib.suppress(ConnectionError):
            for part in parts:
                client.sendall(part)
            if end:
                client.shutdown(socket.SHUT_WR)
        answer = b""
        while chunk := client.recv(65_536):
            answer += chunk
    return answer


def answers(data: bytes) -> list[Answer]:
    """The answers these bytes are, each well-formed; nothing may be left over."""
    found = []
    while data:
        head, end, rest = data.partition(b"\r\n\r\n")
        assert end, data
        status_line, *lines = head.decode("ascii").split("\r\n")
        status = _STATUS.fullmatch(status_line)
        assert status, status_line
        pairs = [_FIELD.fullmatch(line) for line in lines]
        assert all(pairs), lines
        fields = {pair[1]: pair[2] for pair in pairs if pair}
        length = int(fields.get("content-length", "0"))
        assert len(rest) >= length, "an answer breaks off"
        found.append(Answer(int(status[1]), fields, rest[:length]))
        data = rest[length:]
    return found


def exchanged(address: Address, *parts: bytes, end: bool = False) -> list[Answer]:
    return answers(said(address, *parts, end=end))
