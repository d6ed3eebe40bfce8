"""The keys of issuers whose tokens somebody trusts: read again and again, by no request.

So a request costs no question to anybody else, and an issuer that is down stops nobody: the keys
that were read last stay.
"""

from datetime import timedelta
from typing import Any, Final

import structlog
from sqlalchemy.orm import Session

from control.access.signed_tokens import Jwk
from control.work import Operation, Schedule, workflow
from control.workflows.roles.issuer_documents import IssuerUnavailable
from storage.database import now
from storage.roles import oidc_issuers

EVERY_S: Final = 300
RETRIES: Final = 2
"""In one turn."""
LATELY: Final = timedelta(seconds=30)
"""One that was asked so lately is not asked again, however often somebody begins to trust it."""
_log = structlog.get_logger("issuers")


def lane_of(issuer: str) -> str:
    return f"issuer:{issuer}"


def in_lanes(db: Session) -> dict[str, dict[str, Any]]:
    """The lane of each issuer that is trusted, so that one which is down delays no other."""
    return {lane_of(issuer): {"issuer": issuer} for issuer in oidc_issuers.trusted(db)}


@workflow("issuers.read", deadline_s=240, joins=True, asks_strangers=True)
def read_keys(op: Operation) -> None:
    issuer = op.args["issuer"]
    if issuer not in op.services.settings.oidc_issuers or _was_asked(op, issuer):
        return
    try:
        keys = op.services.issuers.keys(issuer)
    except IssuerUnavailable as error:
        if op.attempts < RETRIES:
            raise
        _log.warning("keys of an issuer cannot be read", issuer=issuer, error=error.detail)
        _note_failure(op, issuer, error.detail)
        return
    _record(op, issuer, keys)


def _was_asked(op: Operation, issuer: str) -> bool:
    with op.database.read() as db:
        known = oidc_issuers.find(db, issuer)
        tried_at = None if known is None else known.tried_at
        return tried_at is not None and tried_at > now(db) - LATELY


def _record(op: Operation, issuer: str, keys: list[Jwk]) -> None:
    op.step_in_transaction(
        "record", lambda db: oidc_issuers.hold(db, issuer).became_known(keys, now(db))
    )


def _note_failure(op: Operation, issuer: str, reason: str) -> None:
    op.step_in_transaction(
        "failed", lambda db: oidc_issuers.hold(db, issuer).became_unreachable(reason, now(db))
    )


SCHEDULE: Final = Schedule("issuers", read_keys, every_s=EVERY_S, lanes=in_lanes)
