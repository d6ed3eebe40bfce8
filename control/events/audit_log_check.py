"""Checks of the signed log of published heads: its records follow each other without gaps."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import orjson

from control.events import audit_records
from control.events.audit_checks import KnownHead
from storage.events.audit_chain import NOTHING


@dataclass
class CheckedLog:
    """What a log says: the hashes of its records by number, and its heads by chain."""

    source: str
    findings: list[str] = field(default_factory=list)
    hashes: dict[int, set[str]] = field(default_factory=dict)
    heads: dict[str, list[KnownHead]] = field(default_factory=lambda: defaultdict(list))
    times: dict[str, str] = field(default_factory=dict)
    """Of records, by their hashes."""

    @property
    def records(self) -> int:
        return len(self.times)

    def say(self, finding: str) -> None:
        self.findings.append(f"log {self.source}: {finding}")


def check(lines: Iterable[str], source: str, public_key: str | None) -> CheckedLog:
    """`public_key` is the one that must have signed it; None: whichever it names."""
    log = CheckedLog(source)
    expected: int | None = None
    for place, line in enumerate(lines, 1):
        record = _record(line)
        if record is None:
            log.say(f"line {place} is no record: it was changed")
            continue
        number = record["number"]
        is_signed = _is_signed(record, public_key)
        if not is_signed:
            log.say(f"the signature of record {number} is not right: it was changed")
        if expected is not None and number > expected:
            missing = f"{expected}" if number == expected + 1 else f"{expected} to {number - 1}"
            log.say(f"before record {number}, the records {missing} are missing")
        elif not _follows(log, record):
            log.say(f"record {number} does not follow record {number - 1}: one was changed")
        _take(log, record, audit_records.hash_of(line), is_signed)
        expected = number + 1
    return log


def compare(log: CheckedLog, published: dict[int, str]) -> None:
    """With the records that the database has, by number: none may be in one of the two only."""
    if published and not log.hashes:
        log.say(f"it has no records, and the database has {len(published)}: the log was removed")
        return
    for number, hashed in sorted(published.items()):
        if hashed not in log.hashes.get(number, ()):
            log.say(f"record {number} of the database is not there: it was removed or replaced")
    first = min(published, default=None)
    for number, hashes in sorted(log.hashes.items()):
        for hashed in sorted(hashes - {published.get(number, "")}):
            if first is None or number >= first:
                log.say(
                    f"record {number} of {log.times[hashed]} is not in the database: the database"
                    " was restored from an earlier backup, or its records were removed"
                )


def _record(line: str) -> dict[str, Any] | None:
    try:
        found = orjson.loads(line)
    except ValueError:
        return None
    members = {"heads", "number", "previous", "public_key", "time", "signature"}
    if not isinstance(found, dict) or found.keys() != members:
        return None
    return found if type(found["number"]) is int else None


def _is_signed(record: dict[str, Any], public_key: str | None) -> bool:
    if public_key is not None and record["public_key"] != public_key:
        return False
    return audit_records.is_record_signed(record)


def _follows(log: CheckedLog, record: dict[str, Any]) -> bool:
    number, previous = record["number"], record["previous"]
    if number == 1:
        return bool(previous == NOTHING)
    # An operator may have removed the oldest files, so the first record need not be number 1.
    return not log.hashes or str(previous) in log.hashes.get(number - 1, ())


def _take(log: CheckedLog, record: dict[str, Any], hashed: str, is_signed: bool) -> None:
    """What is not signed may say anything, so its heads are none."""
    number, time = record["number"], str(record["time"])
    log.hashes.setdefault(number, set()).add(hashed)
    log.times[hashed] = time
    for head in record["heads"] if is_signed else ():
        known = KnownHead(head["seq"], head["hash"], time, f"record {number} of the log")
        log.heads[head["chain"]].append(known)
