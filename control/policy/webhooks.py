"""Webhooks: which events an endpoint gets. Pure: filters in, what is wrong out."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from control.policy.violations import Violation, wrong

FILTERS: Final = ("project_ids", "team_ids", "engines", "instance_ids")


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
