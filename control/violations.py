"""Telling a caller everything that is wrong with what they ask."""

from collections.abc import Sequence

from control.policy.violations import Violation
from specserver import Invalid


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
