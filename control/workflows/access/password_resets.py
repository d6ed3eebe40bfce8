"""Letters by which a password is reset: whether an address has an account is looked up here.

So a request for one costs the same, and takes the same time, whoever's address it names.
"""

import hashlib
from datetime import timedelta
from typing import Any, Final

import structlog
from sqlalchemy.orm import Session

from control import work
from control.boundary import identity
from control.mail import letters
from control.policy import quotas
from control.sealing import Sealer
from control.work import Operation, workflow
from control.workflows.access import mail
from storage.access import account_tokens, users
from storage.access.account_tokens import PASSWORD_RESET
from storage.database import now
from storage.events import audit

_CONTEXT: Final = "password_reset"
"""What an address is sealed for: it may be anything that somebody typed."""
_log = structlog.get_logger("password_reset")


@workflow("password_resets.send", deadline_s=3_600)
def send(op: Operation) -> None:
    """At most some a day to each account, however many are asked for."""
    email = op.services.sealer.open(bytes.fromhex(op.args["sealed"]), _CONTEXT).decode()
    op.step_in_transaction("issue", lambda db: _issue(op, db, email))


def ask(db: Session, sealer: Sealer, email: str, asked: dict[str, Any]) -> None:
    """Have a letter sent if there is an account; `asked` says by which request, and from where.

    A few lanes for all: however many are asked for, they take few threads, one after the other.
    """
    args = {"sealed": sealer.seal(email.encode(), _CONTEXT).hex(), **asked}
    lane = hashlib.sha256(email.lower().encode()).hexdigest()[0]
    work.enqueue(db, send, f"password_resets:{lane}", args)


def _issue(op: Operation, db: Session, email: str) -> None:
    user = users.by_email(db, email)
    # Service accounts have a user too, and neither a mailbox nor a password.
    if user is None or not user.is_person:
        return
    at = now(db)
    sent = account_tokens.count_since(db, user.id, PASSWORD_RESET, at - timedelta(days=1))
    if sent >= quotas.LETTERS_A_DAY_MAX:
        _log.warning("password_reset.too_many", user_id=user.id, ip=op.args["ip"])
        return
    token = identity.new_password_reset_token()
    settings = op.services.settings
    expires_at = at + timedelta(seconds=settings.password_reset_ttl_s)
    made = account_tokens.create(
        db,
        user.id,
        PASSWORD_RESET,
        email=user.email,
        token_hash=token.sha256,
        expires_at=expires_at,
    )
    letter = letters.password_reset(
        to=user.email, token=token.secret, until=expires_at, base_url=settings.base_url
    )
    mail.post_for_account(db, op.services.sealer, letter, made)
    audit.append(
        db,
        None,
        "user.password.reset_request",
        actor_kind="anonymous",
        target=user.id,
        request_id=op.args["request_id"],
        ip=op.args["ip"],
    )
