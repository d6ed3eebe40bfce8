"""The credit programs that organizations can apply for, as data, and when they can."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final

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


def refusal(
    programme: str, status: str | None, decided_at: datetime | None, now: datetime
) -> tuple[str, str] | None:
    """Why an organization cannot apply whose last application has this status: code and detail."""
    name = PROGRAMMES[programme].name
    if status == "pending":
        detail = f"an application for the program {name} is pending; wait for the decision"
        return "programme_pending", detail
    if status == "approved":
        return "programme_granted", f"credit of the program {name} was granted already"
    if status == "declined" and decided_at is not None and now < decided_at + AGAIN_AFTER:
        detail = f"an application for the program {name} was declined; you can apply again from"
        return "programme_declined", f"{detail} {decided_at + AGAIN_AFTER:%Y-%m-%d} on"
    return None
