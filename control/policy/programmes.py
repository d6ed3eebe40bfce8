"""The credit programs that organizations can apply for, as data, and when they can."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final, NamedTuple

AGAIN_AFTER: Final = timedelta(days=30)
"""How long after a decline an organization can apply again."""


@dataclass(frozen=True)
class Programme:
    """`who` says whom it is for. The credit is of so many cents, for so many months."""

    id: str
    name: str
    who: str
    amount_cents: int
    months: int


PROGRAMMES: Final[Mapping[str, Programme]] = MappingProxyType(
    {
        each.id: each
        for each in (
            Programme(
                "startup",
                "Startups",
                "companies that are younger than five years and have raised less than 5 million",
                amount_cents=500_000,
                months=12,
            ),
            Programme(
                "open_source",
                "Open source",
                "projects with a license that the Open Source Initiative approved",
                amount_cents=120_000,
                months=12,
            ),
            Programme(
                "education",
                "Education",
                "schools, universities and their classes",
                amount_cents=60_000,
                months=6,
            ),
        )
    }
)


class ProgrammeRefusal(NamedTuple):
    code: str
    detail: str


def refusal(
    programme: str, status: str | None, decided_at: datetime | None, now: datetime
) -> ProgrammeRefusal | None:
    """Why an organization cannot apply whose last application has this status."""
    name = PROGRAMMES[programme].name
    if status == "pending":
        detail = f"an application for the program {name} is pending; wait for the decision"
        return ProgrammeRefusal(code="programme_pending", detail=detail)
    if status == "approved":
        detail = f"credit of the program {name} was granted already"
        return ProgrammeRefusal(code="programme_granted", detail=detail)
    if status == "declined" and decided_at is not None and now < decided_at + AGAIN_AFTER:
        detail = f"an application for the program {name} was declined; you can apply again from"
        detail = f"{detail} {decided_at + AGAIN_AFTER:%Y-%m-%d} on"
        return ProgrammeRefusal(code="programme_declined", detail=detail)
    return None
