"""Passkeys of people, known by ids of their authenticators, and challenges that are used up."""

from datetime import datetime

from sqlalchemy import BigInteger, ForeignKey, delete, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage import identifiers, pages
from storage.access.users import User
from storage.columns import Record
from storage.errors import RecordNotFound, StateConflict
from storage.lookups import by_key, delete_some
from storage.pages import Page


class Passkey(Record):
    __tablename__ = "passkeys"

    id: Mapped[str] = mapped_column(primary_key=True)
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id"), index=True)
    name: Mapped[str]
    # In base64url, as browsers send it.
    credential_id: Mapped[str] = mapped_column(unique=True)
    public_key: Mapped[bytes]
    # What it last counted to; 0 where it does not count.
    sign_count: Mapped[int] = mapped_column(BigInteger)
    # Whether it can be copied to other devices, and whether it has been.
    is_backup_eligible: Mapped[bool]
    is_backed_up: Mapped[bool]
    last_used_at: Mapped[datetime | None]

    def note_use(self, *, sign_count: int, is_backed_up: bool, at: datetime) -> None:
        self.sign_count, self.is_backed_up, self.last_used_at = sign_count, is_backed_up, at


class UsedChallenge(Record):
    """A challenge that was answered: good once. It is of no use after `expires_at` anyway."""

    __tablename__ = "used_challenges"

    challenge_hash: Mapped[str] = mapped_column(primary_key=True)
    expires_at: Mapped[datetime] = mapped_column(index=True)


def add(db: Session, user: User, passkey: Passkey) -> Passkey:
    """The user is locked, so that no two count alike."""
    passkey.id, passkey.user_id = identifiers.new("pk_"), user.id
    db.add(passkey)
    user.passkeys += 1
    db.flush()
    return passkey


def remove(db: Session, user: User, passkey: Passkey) -> None:
    """As `add`."""
    db.delete(passkey)
    user.passkeys -= 1
    db.flush()


def forget(db: Session, user: User) -> None:
    """All of the user's, who is locked."""
    db.execute(delete(Passkey).where(Passkey.user_id == user.id))
    user.passkeys = 0


def fetch(db: Session, user_id: str, passkey_id: str, *, lock: bool = False) -> Passkey:
    """One of the user's; `lock` holds it until the transaction ends."""
    found = by_key(db, Passkey, passkey_id, lock=lock)
    if found is None or found.user_id != user_id:
        raise RecordNotFound("passkey not found")
    return found


def by_credential_id(db: Session, credential_id: str) -> Passkey | None:
    """Held until the commit, so that it counts one use after another."""
    rows = select(Passkey).where(Passkey.credential_id == credential_id)
    return db.scalars(rows.with_for_update()).one_or_none()


def page(db: Session, user_id: str, *, limit: int, after: str | None) -> Page[Passkey]:
    """The user's, newest first."""
    rows = select(Passkey).where(Passkey.user_id == user_id)
    return pages.keyset(db, rows, Passkey.id, limit=limit, after=after)


def credential_ids(db: Session, user_id: str) -> list[str]:
    rows = select(Passkey.credential_id).where(Passkey.user_id == user_id)
    return list(db.scalars(rows.order_by(Passkey.id)))


def use_challenge(db: Session, challenge_hash: str, expires_at: datetime) -> None:
    """StateConflict where it was used. Whoever asks holds the user or the passkey it is for."""
    used = select(UsedChallenge.challenge_hash).where(
        UsedChallenge.challenge_hash == challenge_hash
    )
    if db.scalar(used) is not None:
        raise StateConflict("this challenge was used already")
    db.add(UsedChallenge(challenge_hash=challenge_hash, expires_at=expires_at))
    db.flush()


def forget_used_challenges(db: Session, before: datetime, limit: int) -> int:
    """Delete at most `limit` that were over before that moment; how many went."""
    return delete_some(db, UsedChallenge, UsedChallenge.expires_at < before, limit)
