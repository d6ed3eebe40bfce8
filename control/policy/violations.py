"""What is wrong with a body, as policies say it and as a caller is told of it."""

from collections.abc import Sequence
from typing import TypedDict

from control.policy.sizes import GB
from specserver import Invalid


class Violation(TypedDict):
    """One thing wrong with a body: where (a JSON pointer), which rule, and what to do about it."""

    pointer: str
    keyword: str
    message: str


def wrong(field: str, keyword: str, message: str) -> Violation:
    """That something is wrong with a field of the body, or with all of it ('')."""
    return Violation(pointer=f"/{field}" if field else "", keyword=keyword, message=message)


def gigabytes(size_bytes: int) -> str:
    """As in: 1.50 GB."""
    whole, rest = divmod(size_bytes, GB)
    return f"{whole} GB" if not rest else f"{size_bytes / GB:.2f} GB"


def refuse(violations: Sequence[Violation], several: str | None = None) -> None:
    """Raises Invalid with all violations, where there are any.

    One is told in its own words; of more, `several` says how many, or else the first is told.
    """
    if not violations:
        return
    detail = violations[0]["message"]
    if several is not None and len(violations) > 1:
        detail = several.format(len(violations))
    raise Invalid(detail, errors=list(violations))
