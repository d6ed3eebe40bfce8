"""What the cell learns from the gateway: connections and bytes of each instance, by worker."""

import contextlib
import os
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import orjson

HOUR_S = 3600
PEAK_HOURS = 6
"""For so long the peaks of hours that are over are told, for a control plane that was away."""


@dataclass(slots=True)
class Former:
    """What workers before this one knew of an instance."""

    last_activity_at: float = 0.0
    peaks: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class ConnectionTraffic:
    """The bytes of one connection, counted where they pass. `id` is made with its first report."""

    instance_id: str = ""
    client_ip: str = ""
    protocol: str = ""
    bytes_in: int = 0
    bytes_out: int = 0
    id: str = ""
    reported_bytes: int = 0


@dataclass(slots=True)
class InstanceTraffic:
    """`peaks` are the most connections at once that were let in, of all workers, by the hour.

    `ended_in` and `ended_out` are the bytes of connections that are `open` no more.
    """

    last_activity_at: float = 0.0
    peaks: dict[int, int] = field(default_factory=dict)
    open: set[ConnectionTraffic] = field(default_factory=set)
    ended_in: int = 0
    ended_out: int = 0

    bytes_in: int = 0
    bytes_out: int = 0
    seen_bytes: int = 0

    def look(self) -> None:
        """Adds up, and notes the time where bytes have moved since the last look."""
        self.bytes_in = self.ended_in + sum(each.bytes_in for each in self.open)
        self.bytes_out = self.ended_out + sum(each.bytes_out for each in self.open)
        moved_bytes = self.bytes_in + self.bytes_out
        if moved_bytes != self.seen_bytes:
            self.seen_bytes = moved_bytes
            self.last_activity_at = time.time()


class Activity:
    def __init__(
        self,
        directory: Path,
        former: dict[str, Former],
        total: Callable[[str], int],
        ended: Callable[[ConnectionTraffic], None] = lambda _: None,
    ) -> None:
        """`total` says how many connections of an instance all workers have together.

        `ended` is called with each connection as it closes.
        """
        self._total = total
        self._ended = ended
        self._path = directory / f"{os.getpid()}.json"
        self._instances = {
            instance_id: InstanceTraffic(told.last_activity_at, dict(told.peaks))
            for instance_id, told in former.items()
        }
        self._written = b"{}"
        # The first connection of an instance must be known before the cell thinks it idle.
        self.urgent = False

    def opened(
        self, instance_id: str, client_ip: str = "", protocol: str = ""
    ) -> ConnectionTraffic:
        traffic = self._instances.setdefault(instance_id, InstanceTraffic())
        self.urgent = self.urgent or not traffic.open
        connection = ConnectionTraffic(instance_id, client_ip, protocol)
        traffic.open.add(connection)
        traffic.last_activity_at = time.time()
        return connection

    def open_of(self, instance_id: str) -> Collection[ConnectionTraffic]:
        traffic = self._instances.get(instance_id)
        return () if traffic is None else traffic.open

    def let_in(self, instance_id: str) -> None:
        """One more connection counts: this hour's peak may be now."""
        self._note_peak(instance_id, self._instances.setdefault(instance_id, InstanceTraffic()))

    def _note_peak(self, instance_id: str, traffic: InstanceTraffic) -> None:
        hour, total = int(time.time() // HOUR_S), self._total(instance_id)
        if total > traffic.peaks.get(hour, 0):
            traffic.peaks[hour] = total
        for past in [each for each in traffic.peaks if each <= hour - PEAK_HOURS]:
            del traffic.peaks[past]

    def closed(self, connection: ConnectionTraffic) -> None:
        traffic = self._instances[connection.instance_id]
        traffic.open.discard(connection)
        traffic.ended_in += connection.bytes_in
        traffic.ended_out += connection.bytes_out
        traffic.last_activity_at = time.time()
        self._ended(connection)

    def forget_all_but(self, instance_ids: set[str]) -> None:
        for instance_id in [i for i in self._instances if i not in instance_ids]:
            if not self._instances[instance_id].open:
                del self._instances[instance_id]

    def totals(self) -> Iterator[tuple[str, int]]:
        """What the connections of each instance have sent out since this worker began."""
        for instance_id, traffic in self._instances.items():
            traffic.look()
            yield instance_id, traffic.bytes_out

    def write(self) -> bool:
        """True where something had changed since the last time."""
        self.urgent = False
        for instance_id, traffic in self._instances.items():
            traffic.look()
            if traffic.open:
                # Those that stay when the hour turns are connections of the next one, too.
                self._note_peak(instance_id, traffic)
        content = orjson.dumps(
            {instance_id: _shown(traffic) for instance_id, traffic in self._instances.items()}
        )
        if content == self._written:
            return False
        temporary = self._path.with_suffix(".part")
        temporary.write_bytes(content)
        temporary.replace(self._path)
        self._written = content
        return True


def _shown(traffic: InstanceTraffic) -> dict[str, float | int | dict[str, int]]:
    return {
        "connections": len(traffic.open),
        "last_activity_at": round(traffic.last_activity_at, 3),
        "bytes_in": traffic.bytes_in,
        "bytes_out": traffic.bytes_out,
        "peaks": {str(hour): peak for hour, peak in traffic.peaks.items()},
    }


def take_over(directory: Path, alive: set[int], found: dict[str, Former]) -> None:
    """Adds to `found` what the files of workers that are gone say, which go too.

    Left alone their connections would keep an instance from ever being idle; forgotten, a restart
    of the gateway would make every instance look idle since long ago.
    """
    for path in directory.glob("*.json"):
        if path.stem.isdigit() and int(path.stem) in alive:
            continue
        with contextlib.suppress(OSError, ValueError, AttributeError, KeyError, TypeError):
            for instance_id, told in orjson.loads(path.read_bytes()).items():
                known = found.setdefault(instance_id, Former())
                at = float(told["last_activity_at"])
                known.last_activity_at = max(known.last_activity_at, at)
                for hour, peak in told.get("peaks", {}).items():
                    known.peaks[int(hour)] = max(known.peaks.get(int(hour), 0), int(peak))
        path.unlink(missing_ok=True)
