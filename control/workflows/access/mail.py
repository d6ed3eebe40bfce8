"""Letters: each is sent by work of its own, so that no request waits for a mail server."""

from typing import Any, Final

import orjson
from sqlalchemy.orm import Session

from control import work
from control.mail import Letter, MailRefused
from control.sealing import Sealer
from control.work import GiveUp, Operation, workflow
from storage import identifiers
from storage.access import account_tokens, invites
from storage.access.account_tokens import AccountToken
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
    _post(db, sealer, letter, {"org_id": invite.org_id, "invite_id": invite.id})


def post_for_account(db: Session, sealer: Sealer, letter: Letter, token: AccountToken) -> None:
    """Have the letter with the token of an account sent, as `post` does."""
    _post(db, sealer, letter, {"account_token_id": token.id})


def tell(db: Session, sealer: Sealer, letter: Letter) -> None:
    """Have a letter sent that is wanted whatever comes."""
    _post(db, sealer, letter, {})


def _post(db: Session, sealer: Sealer, letter: Letter, about: dict[str, Any]) -> None:
    sealed = sealer.seal(orjson.dumps(letter.as_json()), _CONTEXT).hex()
    work.enqueue(db, send, identifiers.new("mail_"), {**about, "sealed": sealed})


def notify(db: Session, sealer: Sealer, letter: Letter, org_id: str) -> None:
    """Have a letter of an organization sent that stays true."""
    _post(db, sealer, letter, {"org_id": org_id})


def post_of_approval(
    db: Session, sealer: Sealer, letter: Letter, approval: Approval, *, while_pending: bool
) -> None:
    """As `post`, of an order: asking somebody to decide is in vain once it was decided."""
    about = {"approval_id": approval.id} if while_pending else {}
    _post(db, sealer, letter, {"org_id": approval.org_id, **about})


def _is_wanted(op: Operation) -> bool:
    """What was revoked, used or decided meanwhile needs no letter."""
    args = op.args
    with op.database.read() as db:
        if "account_token_id" in args:
            return account_tokens.is_pending(db, args["account_token_id"], now(db))
        if "invite_id" in args:
            return invites.is_pending(db, args["org_id"], args["invite_id"], now(db))
        if "approval_id" in args:
            return approvals.is_pending(db, args["org_id"], args["approval_id"], now(db))
    return True


def _opened(sealer: Sealer, sealed: str) -> Letter:
    told: dict[str, Any] = orjson.loads(sealer.open(bytes.fromhex(sealed), _CONTEXT))
    return Letter.of_json(told)
