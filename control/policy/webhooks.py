"""Webhooks: which events an endpoint gets. Pure: patterns and filters in, what is wrong out."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from control.policy.violations import Violation, wrong

FILTERS: Final = ("project_ids", "team_ids", "engines", "instance_ids")
NEVER_MATCHED: Final = frozenset({"webhook.ping.v1"})
"""Described with the others, and in no list of events: no pattern matches them."""


def matches(patterns: Collection[str], kind: str) -> bool:
    """Whether a kind is one of them; `instance.*` is every kind that begins with `instance.`."""
    return any(
        each in (kind, "*") or (each.endswith(".*") and kind.startswith(each[:-1]))
        for each in patterns
    )


def check_patterns(patterns: Sequence[str], kinds: Collection[str]) -> list[Violation]:
    """Everything wrong with the events of an endpoint; `kinds` are those that there are."""
    known = sorted(set(kinds) - NEVER_MATCHED)
    return [
        wrong(f"events/{place}", "enum", _unknown(pattern, known))
        for place, pattern in enumerate(patterns)
        if not any(matches([pattern], kind) for kind in known)
    ]


def _unknown(pattern: str, known: Sequence[str]) -> str:
    begins = sorted({f"{kind.partition('.')[0]}.*" for kind in known})
    return (
        f"{pattern} is no kind of events, and no pattern of any; use *, one of"
        f" {', '.join(begins)}, or one of {', '.join(known)}"
    )


def check_filters(
    filters: Mapping[str, Sequence[str]], known: Mapping[str, Collection[str]]
) -> list[Violation]:
    """`known` has those of the ids that there are in the organization, by filter."""
    names = {"project_ids": "project", "team_ids": "team", "instance_ids": "instance"}
    return [
        wrong(
            f"filters/{name}/{place}",
            "enum",
            f"there is no {names[name]} {wanted} in the organization",
        )
        for name in names
        for place, wanted in enumerate(filters.get(name, ()))
        if wanted not in known[name]
    ]


def passes(filters: Mapping[str, Collection[str]], subject: Mapping[str, str | None]) -> bool:
    """Whether what an event is about passes all filters: for each, one of its values is enough.

    What an event does not concern passes no filter by it.
    """
    return all(subject.get(name) in wanted for name, wanted in filters.items())
