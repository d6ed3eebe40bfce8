"""What each connection has sent out since the last report, for the instances that are asked about.

The cell writes their ids and until when it wants them; each worker writes a file every few seconds,
which the cell removes when the control plane has it. Bytes are counted where they pass anyway, and
nothing is done for an instance that nobody asks about.
"""

import secrets
import time
from collections import defaultdict
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Final

import orjson

from gateway.activity import ConnectionTraffic

WANTED: Final = "wanted.json"
CONNECTIONS_MAX: Final = 200
"""Of an instance, in one report of a worker; what the others sent is told as one sum."""
FILES_MAX: Final = 120
"""Of one worker; the oldest is removed where nobody has taken so many."""
OpenOf = Callable[[str], Collection[ConnectionTraffic]]


class EgressReports:
    """Of one worker."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._wanted: frozenset[str] = frozenset()
        self._ended: defaultdict[str, list[ConnectionTraffic]] = defaultdict(list)
        self._ended_bytes: defaultdict[str, int] = defaultdict(int)
        self._since = time.time()
        self._run = secrets.token_hex(4)
        self._number = 0

    def ended(self, connection: ConnectionTraffic) -> None:
        """It closed: what it sent since the last report is in the next one."""
        instance_id = connection.instance_id
        if instance_id not in self._wanted or connection.bytes_out == connection.reported_bytes:
            return
        if len(self._ended[instance_id]) < CONNECTIONS_MAX:
            self._ended[instance_id].append(connection)
        else:
            self._ended_bytes[instance_id] += connection.bytes_out - connection.reported_bytes

    def write(self, open_of: OpenOf) -> None:
        """What was sent since the last time."""
        now = time.time()
        reports = [one for each in sorted(self._wanted) for one in self._reports(each, open_of)]
        if reports:
            self._put({"since": self._since, "until": now, "reports": reports})
        self._since = now
        self._ask(open_of, now)

    def _reports(self, instance_id: str, open_of: OpenOf) -> list[dict[str, Any]]:
        moved = [each for each in open_of(instance_id) if each.bytes_out != each.reported_bytes]
        moved += self._ended.pop(instance_id, [])
        moved.sort(key=lambda each: each.reported_bytes - each.bytes_out)
        rest_bytes = self._ended_bytes.pop(instance_id, 0)
        told = []
        for number, each in enumerate(moved):
            sent = each.bytes_out - each.reported_bytes
            each.reported_bytes = each.bytes_out
            if number < CONNECTIONS_MAX:
                each.id = each.id or f"con_{secrets.token_hex(8)}"
                told.append(_report(instance_id, sent, each))
            else:
                rest_bytes += sent
        return [*told, _report(instance_id, rest_bytes, None)] if rest_bytes else told

    def _put(self, content: dict[str, Any]) -> None:
        path = self._directory / f"{self._run}-{self._number}.json"
        temporary = path.with_suffix(".part")
        temporary.write_bytes(orjson.dumps(content))
        temporary.replace(path)
        oldest = self._directory / f"{self._run}-{self._number - FILES_MAX}.json"
        oldest.unlink(missing_ok=True)
        self._number += 1

    def _ask(self, open_of: OpenOf, now: float) -> None:
        """Who is asked about from now on; what was sent before that is not told."""
        wanted = _wanted(self._directory / WANTED, now)
        for instance_id in wanted - self._wanted:
            for each in open_of(instance_id):
                each.reported_bytes = each.bytes_out
        for instance_id in self._wanted - wanted:
            self._ended.pop(instance_id, None)
            self._ended_bytes.pop(instance_id, None)
        self._wanted = wanted


def _wanted(path: Path, now: float) -> frozenset[str]:
    """None after the time that the cell gave: nobody takes the files then."""
    try:
        told = orjson.loads(path.read_bytes())
        return frozenset(told["instance_ids"]) if told["until"] > now else frozenset()
    except (OSError, ValueError, KeyError, TypeError):
        return frozenset()


def _report(instance_id: str, sent: int, connection: ConnectionTraffic | None) -> dict[str, Any]:
    return {
        "instance_id": instance_id,
        "connection_id": None if connection is None else connection.id,
        "client_ip": None if connection is None else connection.client_ip,
        "protocol": None if connection is None else connection.protocol,
        "bytes_out": sent,
    }
