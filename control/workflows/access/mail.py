"""Letters: each is sent by work of its own, so that no request waits for a mail server."""

from typing import Any, Final

import orjson
from sqlalchemy.orm import Session

from control import work
from control.mail import Letter, MailRefused
from control.sealing import Sealer
from control.work import GiveUp, Operation, workflow
from storage import identifiers
from storage.access import invites
from storage.access.invites import Invite
from storage.database import now
from storage.instances import approvals
from storage.instances.approvals import Approval

_CONTEXT: Final = "letter"
"""What a letter is sealed for: it may hold a token, which the database must not tell."""


@workflow("mail.send", deadline_s=86_400, asks_strangers=True)
def send(op: Operation) -> None:
    """Tried again for a day while the mail server does not take it, less and less often."""
    if not _is_wanted(op):
        return
    letter = _opened(op.services.sealer, op.args["sealed"])
    try:
        op.step("send", lambda: op.services.mailer.send(letter, op.key("send")))
    except MailRefused as error:
        raise GiveUp(str(error)) from error


def post(db: Session, sealer: Sealer, letter: Letter, invite: Invite) -> None:
    """Have the letter of an invite sent once this transaction is committed."""
    sealed = sealer.seal(orjson.dumps(letter.as_json()), _CONTEXT).hex()
    lane = identifiers.new("mail_")
    args = {"org_id": invite.org_id, "invite_id": invite.id, "sealed": sealed}
    work.enqueue(db, send, lane, args)


def notify(db: Session, sealer: Sealer, letter: Letter, org_id: str) -> None:
    """Have a letter sent that stays true, once this transaction is committed."""
    sealed = sealer.seal(orjson.dumps(letter.as_json()), _CONTEXT).hex()
    work.enqueue(db, send, identifiers.new("mail_"), {"org_id": org_id, "sealed": sealed})


def post_of_approval(
    db: Session, sealer: Sealer, letter: Letter, approval: Approval, *, while_pending: bool
) -> None:
    """As `post`, of an order: asking somebody to decide is in vain once it was decided."""
    sealed = sealer.seal(orjson.dumps(letter.as_json()), _CONTEXT).hex()
    args = {"org_id": approval.org_id, "sealed": sealed}
    if while_pending:
        args["approval_id"] = approval.id
    work.enqueue(db, send, identifiers.new("mail_"), args)


def _is_wanted(op: Operation) -> bool:
    """An invite that was revoked meanwhile needs no letter, nor an order that was decided."""
    org_id = op.args["org_id"]
    with op.database.read() as db:
        if "invite_id" in op.args:
            return invites.is_pending(db, org_id, op.args["invite_id"], now(db))
        if "approval_id" in op.args:
            return approvals.is_pending(db, org_id, op.args["approval_id"], now(db))
    return True


def _opened(sealer: Sealer, sealed: str) -> Letter:
    told: dict[str, Any] = orjson.loads(sealer.open(bytes.fromhex(sealed), _CONTEXT))
    return Letter.of_json(told)
