"""What the cell learns from the gateway: connections and bytes of each instance, by worker."""

import contextlib
import os
import time
from collections.abc import Callable
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


@dataclass(slots=True)
class ConnectionTraffic:
    """`peaks` are the most connections at once that were let in, of all workers, by the hour."""

    connections: int = 0
    last_activity_at: float = 0.0
    peaks: dict[int, int] = field(default_factory=dict)
    bytes_in: int = 0
    bytes_out: int = 0

    seen_bytes: int = 0

    def look(self) -> None:
        """Notes the time where bytes have moved since the last look."""
        moved_bytes = self.bytes_in + self.bytes_out
        if moved_bytes != self.seen_bytes:
            self.seen_bytes = moved_bytes
            self.last_activity_at = time.time()


class Activity:
    def __init__(
        self, directory: Path, former: dict[str, Former], total: Callable[[str], int]
    ) -> None:
        """`total` says how many connections of an instance all workers have together."""
        self._total = total
        self._path = directory / f"{os.getpid()}.json"
        self._instances = {
            instance_id: ConnectionTraffic(0, told.last_activity_at, dict(told.peaks))
            for instance_id, told in former.items()
        }
        self._written = b"{}"
        # The first connection of an instance must be known before the cell thinks it idle.
        self.urgent = False

    def opened(self, instance_id: str) -> ConnectionTraffic:
        traffic = self._instances.setdefault(instance_id, ConnectionTraffic())
        self.urgent = self.urgent or not traffic.connections
        traffic.connections += 1
        traffic.last_activity_at = time.time()
        return traffic

    def let_in(self, instance_id: str) -> None:
        """One more connection counts: this hour's peak may be now."""
        self._note_peak(instance_id, self._instances.setdefault(instance_id, ConnectionTraffic()))

    def _note_peak(self, instance_id: str, traffic: ConnectionTraffic) -> None:
        hour, total = int(time.time() // HOUR_S), self._total(instance_id)
        if total > traffic.peaks.get(hour, 0):
            traffic.peaks[hour] = total
        for past in [each for each in traffic.peaks if each <= hour - PEAK_HOURS]:
            del traffic.peaks[past]

    def closed(self, traffic: ConnectionTraffic) -> None:
        traffic.connections -= 1
        traffic.last_activity_at = time.time()

    def forget_all_but(self, instance_ids: set[str]) -> None:
        for instance_id in [i for i in self._instances if i not in instance_ids]:
            if not self._instances[instance_id].connections:
                del self._instances[instance_id]

    def write(self) -> bool:
        """True where something had changed since the last time."""
        self.urgent = False
        for instance_id, traffic in self._instances.items():
            traffic.look()
            if traffic.connections:
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


def _shown(traffic: ConnectionTraffic) -> dict[str, float | int | dict[str, int]]:
    return {
        "connections": traffic.connections,
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
