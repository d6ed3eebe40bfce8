"""Patterns of kinds of events: what a stream or a webhook asks for.

A pattern is a kind (`instance.ready.v1`), the beginning of kinds up to a dot with a star after it
(`instance.*`, `instance.credentials.*`), or a star alone, which is every kind.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

EVERY = "*"


@dataclass(frozen=True)
class Fault:
    """A pattern by which nothing would ever be sent: the how manyth, and what to write instead."""

    index: int
    pattern: str
    message: str


def matches(pattern: str, kind: str) -> bool:
    """Whether an event of the kind is one that the pattern asks for."""
    if pattern == EVERY:
        return True
    if pattern.endswith(".*") and len(pattern) > len(".*"):
        return kind.startswith(pattern[:-1])
    return kind == pattern


def faults(patterns: Sequence[str], kinds: Collection[str]) -> list[Fault]:
    """Of each pattern that matches none of the kinds, what is wrong with it."""
    return [
        Fault(index, pattern, _message(pattern, kinds))
        for index, pattern in enumerate(patterns)
        if not any(matches(pattern, kind) for kind in kinds)
    ]


def chosen(patterns: Sequence[str], kinds: Collection[str]) -> frozenset[str]:
    """The kinds that any of the patterns asks for."""
    return frozenset(kind for kind in kinds if any(matches(each, kind) for each in patterns))


def _message(pattern: str, kinds: Collection[str]) -> str:
    groups = sorted({kind.partition(".")[0] for kind in kinds})
    group = pattern.partition(".")[0]
    if group in groups:
        known = ", ".join(sorted(kind for kind in kinds if matches(f"{group}.*", kind)))
        return f"{pattern!r} matches no kind of event; there are {group}.* and {known}"
    known = ", ".join(f"{each}.*" for each in groups)
    return (
        f"{pattern!r} matches no kind of event; write a kind such as {min(kinds, default='')},"
        f" {EVERY} for all, or one of the groups {known}"
    )
