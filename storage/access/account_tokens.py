"""Account tokens: what a letter lets somebody do once with an account, known by a hash."""

from datetime import datetime
from typing import Final

from sqlalchemy import ForeignKey, Index, func, select, update
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage import identifiers
from storage.columns import Record, one_of
from storage.errors import RecordNotFound
from storage.lookups import delete_oldest

PASSWORD_RESET: Final = "password_reset"  # noqa: S105 -- a kind of token, and none itself
EMAIL_CHANGE: Final = "email_change"
KINDS: Final = (PASSWORD_RESET, EMAIL_CHANGE)


class AccountToken(Record):
    __tablename__ = "account_tokens"
    __table_args__ = (
        one_of("kind", KINDS),
        Index(None, "user_id", "kind", "id"),
        Index(None, "email"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id"))
    kind: Mapped[str]
    # Where the letter went.
    email: Mapped[str]
    token_hash: Mapped[str] = mapped_column(unique=True)
    expires_at: Mapped[datetime]
    used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]

    def status(self, now: datetime) -> str:
        """`pending`, `used`, `revoked` or `expired`."""
        if self.used_at is not None:
            return "used"
        if self.revoked_at is not None:
            return "revoked"
        return "pending" if self.expires_at > now else "expired"

    def use(self, at: datetime) -> None:
        self.used_at = at


def create(
    db: Session, user_id: str, kind: str, *, email: str, token_hash: str, expires_at: datetime
) -> AccountToken:
    made = AccountToken(
        id=identifiers.new("at_"),
        user_id=user_id,
        kind=kind,
        email=email.lower(),
        token_hash=token_hash,
        expires_at=expires_at,
    )
    db.add(made)
    db.flush()
    return made


def by_hash(db: Session, kind: str, token_hash: str) -> AccountToken:
    """Of whatever status. Whoever goes by it locks its user, and then reads it anew."""
    rows = select(AccountToken).where(AccountToken.token_hash == token_hash)
    found = db.scalars(rows.where(AccountToken.kind == kind)).one_or_none()
    if found is None:
        raise RecordNotFound("no such token was sent")
    return found


def is_pending(db: Session, token_id: str, now: datetime) -> bool:
    found = db.get(AccountToken, token_id)
    return found is not None and found.status(now) == "pending"


def count_since(db: Session, user_id: str, kind: str, since: datetime) -> int:
    """Those sent since, whatever became of them."""
    rows = select(func.count()).select_from(AccountToken)
    rows = rows.where(AccountToken.user_id == user_id, AccountToken.kind == kind)
    return db.scalars(rows.where(AccountToken.created_at >= since)).one()


def count_to(db: Session, email: str, kind: str, since: datetime) -> int:
    """Those sent to this address since, for whichever accounts."""
    rows = select(func.count()).select_from(AccountToken)
    rows = rows.where(AccountToken.email == email.lower(), AccountToken.kind == kind)
    return db.scalars(rows.where(AccountToken.created_at >= since)).one()


def revoke_pending(db: Session, user_id: str, kind: str, at: datetime) -> None:
    """Whatever other letters of this kind were sent to the user lets nobody do anything more."""
    pending = update(AccountToken).where(
        AccountToken.user_id == user_id,
        AccountToken.kind == kind,
        AccountToken.used_at.is_(None),
        AccountToken.revoked_at.is_(None),
    )
    db.execute(pending.values(revoked_at=at).execution_options(synchronize_session=False))


def forget_old(db: Session, before: datetime, limit: int) -> int:
    """Delete at most `limit` of those sent before that moment; how many went."""
    return delete_oldest(db, AccountToken.id, "at_", before, limit)
