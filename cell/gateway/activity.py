"""What the cell learns from the gateway: connections and bytes of each instance, by worker."""

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

import orjson


@dataclass(slots=True)
class Traffic:
    connections: int = 0
    last_activity_at: float = 0.0
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
    def __init__(self, directory: Path, former: dict[str, float]) -> None:
        """`former` is what workers before this one knew of each instance's last activity."""
        self._path = directory / f"{os.getpid()}.json"
        self._instances = {
            instance_id: Traffic(last_activity_at=at) for instance_id, at in former.items()
        }
        self._written = b"{}"
        # The first connection of an instance must be known before the cell thinks it idle.
        self.urgent = False

    def opened(self, instance_id: str) -> Traffic:
        traffic = self._instances.setdefault(instance_id, Traffic())
        self.urgent = self.urgent or not traffic.connections
        traffic.connections += 1
        traffic.last_activity_at = time.time()
        return traffic

    def closed(self, traffic: Traffic) -> None:
        traffic.connections -= 1
        traffic.last_activity_at = time.time()

    def forget_all_but(self, instance_ids: set[str]) -> None:
        for instance_id in [i for i in self._instances if i not in instance_ids]:
            if not self._instances[instance_id].connections:
                del self._instances[instance_id]

    def write(self) -> bool:
        """True where something had changed since the last time."""
        self.urgent = False
        for traffic in self._instances.values():
            traffic.look()
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


def _shown(traffic: Traffic) -> dict[str, float | int]:
    return {
        "connections": traffic.connections,
        "last_activity_at": round(traffic.last_activity_at, 3),
        "bytes_in": traffic.bytes_in,
        "bytes_out": traffic.bytes_out,
    }


def take_over(directory: Path, alive: set[int]) -> dict[str, float]:
    """When each instance was last active, from the files of workers that are gone, which go too.

    Left alone their connections would keep an instance from ever being idle; forgotten, a restart
    of the gateway would make every instance look idle since long ago.
    """
    last_activity_at: dict[str, float] = {}
    for path in directory.glob("*.json"):
        if path.stem.isdigit() and int(path.stem) in alive:
            continue
        with contextlib.suppress(OSError, ValueError, AttributeError, KeyError, TypeError):
            for instance_id, told in orjson.loads(path.read_bytes()).items():
                known = last_activity_at.get(instance_id, 0.0)
                last_activity_at[instance_id] = max(known, float(told["last_activity_at"]))
        path.unlink(missing_ok=True)
    return last_activity_at
