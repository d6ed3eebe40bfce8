"""What connections have sent out: the gateway is told of whom, and what it wrote is handed on."""

from collections.abc import Collection, Iterator
from pathlib import Path
from time import time
from typing import Any, Final

import orjson

from cell.layout import write_atomically
from cell.timestamps import moment
from gateway.egress import WANTED

WANTED_S: Final = 900.0
"""So long the gateway reports on without being asked again."""
FILES_MAX: Final = 1_000
REPORTS_MAX: Final = 20_000
"""Of one answer."""


def collect(
    directory: Path, instance_ids: Collection[str], taken: Collection[str]
) -> list[dict[str, Any]]:
    """The reports there are, oldest first, after those that were `taken` are removed."""
    for name in taken:
        _path(directory, name).unlink(missing_ok=True)
    wanted = {"instance_ids": sorted(instance_ids), "until": time() + WANTED_S}
    write_atomically(directory / WANTED, orjson.dumps(wanted))
    return list(_reports(directory, time() - WANTED_S))


def _path(directory: Path, name: str) -> Path:
    return directory / f"{name}.json"


def _reports(directory: Path, since: float) -> Iterator[dict[str, Any]]:
    count = 0
    for written_at, path in sorted(_written(directory))[:FILES_MAX]:
        told = _read(path) if written_at >= since else None
        if told is None:
            # Nobody asked for it in time, or it cannot be read.
            path.unlink(missing_ok=True)
            continue
        count += len(told["reports"])
        if count > REPORTS_MAX:
            return
        yield {
            "name": path.stem,
            "since": moment(told["since"]),
            "until": moment(told["until"]),
            "reports": told["reports"],
        }


def _written(directory: Path) -> Iterator[tuple[float, Path]]:
    for path in directory.glob("*-*.json"):
        try:
            yield path.stat().st_mtime, path
        except FileNotFoundError:
            continue  # the gateway has just removed it


def _read(path: Path) -> dict[str, Any] | None:
    try:
        told: dict[str, Any] = orjson.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return told
