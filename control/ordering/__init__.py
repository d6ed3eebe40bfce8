"""Ordering instances: terms, checks, the choice of a cell, and the capacity that cells have left.

For handlers, approvals and restores alike: whoever orders says for whom, by a `Requester`.
"""

from control.ordering.capacity import check_wake
from control.ordering.placing import (
    catalogue,
    check_alteration,
    check_return,
    kept_until,
    place,
    place_branch,
    place_restored,
    preview,
)
from control.ordering.requester import Requester

__all__ = [
    "Requester",
    "catalogue",
    "check_alteration",
    "check_return",
    "check_wake",
    "kept_until",
    "place",
    "place_branch",
    "place_restored",
    "preview",
]
