"""The audit log as CSV: its columns."""

from typing import Final

COLUMNS: Final = (
    *("id", "time", "action", "actor_kind", "actor_id", "target", "request_id", "ip"),
    *("detail", "seq", "hash"),
)
