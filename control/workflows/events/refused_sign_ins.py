"""Sign-ins that were refused for having been tried too often: members' organizations are told."""

from sqlalchemy.orm import Session

from control.events import raise_
from control.policy.alert_kinds import SIGN_INS
from control.services import Services
from control.work import Operation, enqueue, workflow
from storage import identifiers
from storage.access import organizations
from storage.access.users import User
from storage.lookups import by_key

_RATE = "refused_account"
NOBODY = "usr_none"


@workflow("alerts.sign_ins", deadline_s=300)
def tell(op: Operation) -> None:
    op.step_in_transaction("raise", lambda db: _raise(db, op.args["user_id"], op.args["guessed"]))


def note(services: Services, account: str, user_id: str | None, guessed: str) -> None:
    """That too many wrong ones were tried; `guessed` is at what: password or code.

    Once in a quarter of an hour for each account, and also where there is none, as the time that
    it takes would tell.
    """
    verdict = services.limiter.charge(_RATE, f"{guessed}:{account}")
    if verdict is None or not verdict.allowed:
        return
    with services.database.write() as db:
        args = {"user_id": user_id or NOBODY, "guessed": guessed}
        enqueue(db, tell, identifiers.new("signin_"), args)


def _raise(db: Session, user_id: str, guessed: str) -> None:
    user = by_key(db, User, user_id)
    if user is None:
        return
    severity = "critical" if guessed == "code" else "warning"
    reason = _REASONS[guessed]
    for org, _role in organizations.of_user(db, user.id):
        if org.status == "open":
            title = f"too many sign-ins to the account of {user.email} failed"
            raise_(db, org, SIGN_INS, severity, title, reason, cause=user.id)


_REASONS = {
    "password": (
        "too many wrong passwords were tried within 15 minutes; if it was not the person, the"
        " second factor protects the account even where its password is found"
    ),
    "code": (
        "too many wrong codes were tried within 15 minutes by somebody who knows the password; if"
        " it was not the person, the password must be changed"
    ),
}
