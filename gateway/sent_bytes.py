"""How many bytes connections have sent out, by the hour and the instance: what egress is billed by.

Each worker has a file of its own, with a name that no other has had. It stays when the worker ends,
and is removed when nobody asks for its hours any more; so nothing is counted twice or lost with a
worker that is killed, but for its last seconds.
"""

import secrets
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import orjson

HOUR_S: Final = 3600
KEPT_HOURS: Final = 72
"""Longer than a control plane that was away for two days needs to ask for all of them."""


class SentBytes:
    """Of one worker. What was sent in the last seconds of an hour may count for the next one."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(mode=0o700, exist_ok=True)
        self._path = directory / f"{secrets.token_hex(8)}.json"
        self._hours: defaultdict[int, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
        self._seen: dict[str, int] = {}
        remove_old(directory, time.time())

    def write(self, totals: Iterable[tuple[str, int]]) -> None:
        """`totals` is what each instance's connections have sent since the worker began."""
        hour, has_changed, seen = int(time.time() // HOUR_S), False, dict[str, int]()
        for instance_id, total in totals:
            before = self._seen.get(instance_id, 0)
            # One that was forgotten meanwhile begins anew.
            more = total - before if total >= before else total
            seen[instance_id] = total
            if more:
                self._hours[hour][instance_id] += more
                has_changed = True
        self._seen = seen
        for past in [each for each in self._hours if each <= hour - KEPT_HOURS]:
            del self._hours[past]
        if has_changed:
            temporary = self._path.with_suffix(".part")
            told = {str(each): dict(of_hour) for each, of_hour in self._hours.items()}
            temporary.write_bytes(orjson.dumps(told))
            temporary.replace(self._path)


def remove_old(directory: Path, now: float) -> None:
    """The files of workers whose last hour nobody asks for any more."""
    for path in directory.glob("*.*"):
        try:
            if path.stat().st_mtime < now - KEPT_HOURS * HOUR_S:
                path.unlink()
        except FileNotFoundError:
            continue  # another worker has just removed it
