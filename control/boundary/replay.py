"""Replay: a POST that was answered is not done again for the same Idempotency-Key.

The answer is stored in the transaction that made it true, so there is never a mark of something
in flight that a crash could leave behind. Requests of one key exclude each other by a lock that
ends with its transaction: PostgreSQL's advisory lock, and on SQLite the one writer there is.
"""

import hashlib
import hmac
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import orjson
from sqlalchemy import BigInteger, bindparam, func, select, true
from sqlalchemy.orm import Session

from control.sealing import Sealer, SealError
from control.settings import ControlSettings
from specserver import Conflict, Exchange, Invalid, Reply
from storage import replays
from storage.access import organizations
from storage.prepared import Prepared
from storage.replays import Replay

HEADER: Final = "Idempotency-Key"
REPLAYED: Final = "Idempotency-Replayed"
_KEY: Final = re.compile(r"[\x21-\x7e]{1,255}")
_MEDIA_TYPE: Final = "Content-Type"
LARGE_FROM: Final = 2048
"""Bytes of a sealed answer. Smaller ones are limited by the rate of requests alone."""
LARGE_MAX: Final = 32 * 2**20
"""Bytes that the large answers of one scope, an organization or a user, may take together."""
BRIEFLY: Final = timedelta(seconds=60)
"""How long a secret is kept that was given to nobody known: so that a lost answer can be asked for
again, and no longer, as whoever asks shows only what the first request showed."""
_HELD: Final = " or was given to another session, which alone gets it again"


@dataclass(frozen=True)
class ReplayKey:
    """Whose key for which operation, and what was asked with it."""

    scope: str
    operation: str
    key: str
    fingerprint: str
    holder: str = ""
    """The session whose alone the answer is; empty where any of the caller's may have it."""
    brief: bool = False
    """Whether the answer is a secret and there is no session to keep it for, as of a sign-in."""

    @property
    def context(self) -> str:
        return f"replay\0{self.scope}\0{self.operation}\0{self.key}"

    @property
    def sealing(self) -> str:
        return f"{self.context}\0{self.holder}" if self.holder else self.context

    @property
    def act(self) -> str:
        """The same for every try of this request, and for no other: what a cell knows it by."""
        return hashlib.sha256(f"{self.context}\0{self.fingerprint}".encode()).hexdigest()


class Replays:
    """The answers of the last 24 hours, sealed; of sign-ins, those of the last minute."""

    def __init__(self, sealer: Sealer, settings: ControlSettings) -> None:
        self._sealer = sealer
        self._ttl = timedelta(seconds=settings.replay_ttl_s)
        # A body may hold a password, so what is kept of it must not be open to guessing.
        self._secret = hmac.digest(settings.cursor_key, b"replay fingerprint", hashlib.sha256)

    def key_of(
        self,
        exchange: Exchange,
        scope: str,
        caller_id: str,
        holder: str = "",
        *,
        brief: bool = False,
    ) -> ReplayKey | None:
        """None without the header. `caller_id` keeps one caller from reading another's answer."""
        key = exchange.request.headers.get(HEADER)
        if key is None or exchange.operation.method.upper() != "POST":
            return None
        if not _KEY.fullmatch(key):
            message = "must be 1 to 255 visible ASCII characters"
            raise Invalid(
                f"the {HEADER} is not valid",
                errors=[{"parameter": HEADER, "keyword": "pattern", "message": message}],
            )
        asked = (
            caller_id.encode(),
            exchange.request.path.encode(),
            exchange.request.query_string.encode(),
            canonical(exchange.body_bytes),
        )
        written = b"".join(b"%d:%s" % (len(part), part) for part in asked)
        fingerprint = hmac.new(self._secret, written, hashlib.sha256).hexdigest()
        return ReplayKey(scope, exchange.operation.id, key, fingerprint, holder, brief)

    def lock(self, db: Session, key: ReplayKey, org_id: str | None = None) -> None:
        """Hold the key until the transaction ends; Conflict while another request holds it.

        And the organization, as `organizations.lock` does, where one is named.
        """
        if not _locked(db, key, org_id):
            raise Conflict(
                f"the request with this {HEADER} is still in progress; retry to get its response",
                code="idempotency_in_flight",
                headers={"Retry-After": "1"},
            )

    def recorded(
        self, db: Session, key: ReplayKey, now: datetime
    ) -> tuple[ReplayKey | None, Reply | None]:
        """The key, held, and what was answered to it: for who has done already what is recorded.

        Waits for whoever holds it; no key where a different request was answered meanwhile.
        """
        if db.get_bind().dialect.name == "postgresql":
            _LOCK.rows(db, number=_number(key))
        try:
            return key, self.answer(db, key, now)
        except Invalid:
            return None, None

    def answer(self, db: Session, key: ReplayKey, now: datetime) -> Reply | None:
        """The answer given before to a key that is held."""
        found = replays.find(db, key.scope, key.operation, key.key)
        if found is not None and found.expires_at <= now:
            db.delete(found)
            db.flush()
            return None
        return self._told(found, key)

    def seen(self, db: Session, key: ReplayKey, now: datetime) -> Reply | None:
        """The same by reading only, for a key that is not held: it may be answered any moment."""
        found = replays.find(db, key.scope, key.operation, key.key)
        return None if found is None or found.expires_at <= now else self._told(found, key)

    def _told(self, found: Replay | None, key: ReplayKey) -> Reply | None:
        if found is None:
            return None
        if not hmac.compare_digest(found.body_sha256, key.fingerprint):
            message = "was used for another request in the last 24 hours; use a new one"
            raise Invalid(
                f"the {HEADER} belongs to another request",
                code="idempotency_key_reused",
                errors=[{"parameter": HEADER, "keyword": "unique", "message": message}],
            )
        return self._opened(found, key)

    def keep(self, db: Session, key: ReplayKey, now: datetime, reply: Reply) -> None:
        """Of a success: what was refused changed nothing, and may be asked again."""
        if reply.chunks is not None:
            return
        sealed = self._sealer.seal(reply.encode(), key.sealing)
        large = len(sealed) if len(sealed) >= LARGE_FROM else None
        is_too_much = large is not None and replays.large_bytes(db, key.scope) + large > LARGE_MAX
        headers = {name: value for name, value in reply.headers.items() if isinstance(value, str)}
        replays.keep(
            db,
            scope=key.scope,
            operation=key.operation,
            key=key.key,
            body_sha256=key.fingerprint,
            state="done",
            status=reply.status,
            headers={**headers, _MEDIA_TYPE: reply.media_type},
            body_sealed=None if is_too_much else sealed,
            large_bytes=None if is_too_much else large,
            expires_at=now + (BRIEFLY if key.brief else self._ttl),
        )

    def _opened(self, found: Replay, key: ReplayKey) -> Reply:
        if found.body_sealed is None:
            raise Conflict(
                f"the response to this {HEADER} was too large to keep with the others of the last"
                " 24 hours; the request took effect and is not repeated",
                code="idempotency_answer_lost",
            )
        try:
            content = self._sealer.open(found.body_sealed, key.sealing)
        except SealError as error:
            raise Conflict(
                f"the response to this {HEADER} was lost{_HELD if key.holder else ''};"
                " the request took effect and is not repeated",
                code="idempotency_answer_lost",
            ) from error
        headers: dict[str, str | list[str]] = {**(found.headers or {}), REPLAYED: "true"}
        media_type = str(headers.pop(_MEDIA_TYPE))
        return Reply(found.status or 200, content or None, headers, media_type)


def canonical(body: bytes) -> bytes:
    """JSON with its members in order and no spaces, so that a reformatted retry is a retry."""
    try:
        return orjson.dumps(orjson.loads(body), option=orjson.OPT_SORT_KEYS)
    except orjson.JSONDecodeError:
        return body


_TRY_LOCK: Final = Prepared(
    select(func.pg_try_advisory_xact_lock(bindparam("number", type_=BigInteger)))
)
_LOCK: Final = Prepared(select(func.pg_advisory_xact_lock(bindparam("number", type_=BigInteger))))


# Of two locks by one statement: a key that another request holds lets no row through, and this one
# does not wait for the organization.
_TRY_BOTH: Final = Prepared(
    organizations.LOCKING.where(
        func.pg_try_advisory_xact_lock(bindparam("number", type_=BigInteger)).is_(true())
    )
)


def _locked(db: Session, key: ReplayKey, org_id: str | None) -> bool:
    if db.get_bind().dialect.name != "postgresql":
        return True
    number = _number(key)
    if org_id is not None:
        return _TRY_BOTH.one_or_none(db, number=number, org_id=org_id) is not None
    ((locked,),) = _TRY_LOCK.rows(db, number=number)
    return bool(locked)


def _number(key: ReplayKey) -> int:
    """What PostgreSQL's lock of a key is known by."""
    digest = hashlib.sha256(key.context.encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)
