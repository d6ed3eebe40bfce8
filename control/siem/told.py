"""One thing that is told to a SIEM, whichever of the streams it is from."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from control.events.envelope import timestamp
from storage.events import egress

AUDIT: Final = "audit.entry.v1"
EGRESS: Final = egress.KIND
GAP: Final = "siem_delivery.gap.v1"
"""Types of what is told to a SIEM alone, beside those of events."""


@dataclass(frozen=True)
class Told:
    """`stream` is audit, events or egress, and `seq` its number there."""

    stream: str
    seq: int
    id: str
    type: str
    time: datetime
    org_id: str
    data: dict[str, Any]

    @property
    def envelope(self) -> dict[str, Any]:
        """As events are sent to webhooks."""
        return {
            "id": self.id,
            "type": self.type,
            "time": timestamp(self.time),
            "org_id": self.org_id,
            "data": self.data,
        }
