"""What the gateway's workers tell of connections, read from the files they write."""

from dataclasses import dataclass, field
from pathlib import Path

import orjson


@dataclass
class Traffic:
    """`peaks` are the most connections at once, by the hour since 1970."""

    connections: int = 0
    last_activity_at: float | None = None
    peaks: dict[int, int] = field(default_factory=dict)


def read(directory: Path) -> dict[str, Traffic]:
    """By instance, over all workers. The file of a worker that is dead counts no connections."""
    found: dict[str, Traffic] = {}
    for path in directory.glob("*.json"):
        alive = Path(f"/proc/{path.stem}").exists()
        try:
            document = orjson.loads(path.read_bytes())
        except (OSError, ValueError):
            continue  # just replaced or removed; the next reading has it
        for instance_id, told in document.items():
            traffic = found.setdefault(instance_id, Traffic())
            traffic.connections += told["connections"] if alive else 0
            traffic.last_activity_at = max(
                traffic.last_activity_at or 0.0, float(told["last_activity_at"])
            )
            # Each worker's is of all workers together, so the largest is the peak.
            for hour, peak in told.get("peaks", {}).items():
                traffic.peaks[int(hour)] = max(traffic.peaks.get(int(hour), 0), int(peak))
    return found
