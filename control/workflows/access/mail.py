"""Letters: each is sent by work of its own, so that no request waits for a mail server."""

from typing import Any, Final

import orjson
from sqlalchemy.orm import Session

from control import work
from control.mail import Letter
from control.sealing import Sealer
from control.work import Operation, workflow
from storage import identifiers

_CONTEXT: Final = "letter"
"""What a letter is sealed for: it may hold a token, which the database must not tell."""


@workflow("mail.send", deadline_s=86_400, asks_strangers=True)
def send(op: Operation) -> None:
    """Tried again for a day while the mail server does not take it."""
    letter = _opened(op.services.sealer, op.args["sealed"])
    op.step("send", lambda: op.services.mailer.send(letter, op.key("send")))


def post(db: Session, sealer: Sealer, letter: Letter, org_id: str) -> None:
    """Have the letter sent once this transaction is committed."""
    sealed = sealer.seal(orjson.dumps(letter.as_json()), _CONTEXT).hex()
    lane = identifiers.new("mail_")
    work.enqueue(db, send, lane, {"org_id": org_id, "sealed": sealed})


def _opened(sealer: Sealer, sealed: str) -> Letter:
    told: dict[str, Any] = orjson.loads(sealer.open(bytes.fromhex(sealed), _CONTEXT))
    return Letter.of_json(told)
