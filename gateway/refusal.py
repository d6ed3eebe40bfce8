"""Why a connection that got through TLS is not served; each protocol words it in its own way."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "paused",
    "too_many_connections",
    "unreachable",
    "not_woken",
    "unknown",  # no such instance, or none was named
    "not_permitted",  # what nobody may ask of an instance through the gateway
    "malformed",
    "changed_login",  # the engine has another password than the cell gave it
]


@dataclass(frozen=True)
class Refusal(Exception):  # noqa: N818 - it is an answer, not a fault of ours
    kind: Kind
    text: str
    retry_after_s: int | None = None
