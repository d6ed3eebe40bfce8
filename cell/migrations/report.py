"""What is found before anything is changed, and how both sides differ: bounded texts."""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from cell.instances.hosted import HostedInstance
from cell.timestamps import moment

Severity = Literal["info", "warning", "blocking"]
COUNT_MAX = 2**53 - 1
SECONDS_MAX = 10**9
FINDINGS_MAX = 200
TEXT_CHARACTERS_MAX = 500
NEARLY_FULL = 0.8
NAMES_SHOWN = 20
ORDER = {"blocking": 0, "warning": 1, "info": 2}


@dataclass(frozen=True)
class PreflightFinding:
    severity: Severity
    code: str
    message: str
    remedy: str | None = None
    object: str | None = None

    def told(self) -> dict[str, Any]:
        return {
            "severity": self.severity,
            "code": self.code,
            "object": self.object and bounded(self.object),
            "message": bounded(self.message),
            "remedy": self.remedy and bounded(self.remedy),
        }


@dataclass(frozen=True)
class PreflightReport:
    engine: str | None
    version: str | None
    size_bytes: int | None
    findings: tuple[PreflightFinding, ...]

    @property
    def blocking(self) -> list[PreflightFinding]:
        return [each for each in self.findings if each.severity == "blocking"]

    def told(self) -> dict[str, Any]:
        ordered = sorted(self.findings, key=lambda each: ORDER[each.severity])
        return {
            "checked_at": moment(time.time()),
            "source": {
                "engine": self.engine,
                "version": self.version and bounded(self.version)[:100],
                "size_bytes": self.size_bytes,
            },
            "findings": [each.told() for each in ordered[:FINDINGS_MAX]],
        }


def sizes(size_bytes: int, instance: HostedInstance) -> Iterator[PreflightFinding]:
    """Whether the instance has room for so much."""
    room_bytes = instance.record.spec.size.storage_bytes
    told = f"the source has {size_bytes} bytes, and the storage of the instance is {room_bytes}"
    if size_bytes > room_bytes:
        remedy = "choose more storage or a larger size (resize)"
        yield PreflightFinding("blocking", "too_large", told, remedy)
    elif size_bytes > NEARLY_FULL * room_bytes:
        remedy = "choose more storage before, so that the instance has room to work"
        yield PreflightFinding("warning", "nearly_full", told, remedy)


@dataclass(frozen=True)
class Difference:
    object: str
    source: str
    target: str


def verification(
    tables: int, rows: int, differences: Iterable[Difference], notes: Iterable[str] = ()
) -> dict[str, Any]:
    return {
        "verified_at": moment(time.time()),
        "tables_compared": tables,
        "rows_compared": rows,
        "differences": [
            {
                "object": bounded(each.object),
                "source": bounded(each.source),
                "target": bounded(each.target),
            }
            for each in list(differences)[:FINDINGS_MAX]
        ],
        "notes": [bounded(each) for each in notes],
    }


def exact(document: Any) -> Any:
    """With counts that JSON and a database can hold: a source may say any number of anything."""
    if isinstance(document, dict):
        return {name: exact(value) for name, value in document.items()}
    if isinstance(document, list):
        return list(map(exact, document))
    if isinstance(document, int) and not isinstance(document, bool):
        return min(max(document, 0), COUNT_MAX)
    return document


def bounded(text: str) -> str:
    """In a time that does not depend on its length: a source may name a thing by 64 MiB."""
    most = TEXT_CHARACTERS_MAX
    kept = text if len(text) <= most else f"{text[: most - 1]}…"
    return "".join(character if character.isprintable() else " " for character in kept)


def some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:NAMES_SHOWN])
    more = len(names) - NAMES_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
