"""Passkeys of the caller: added, named and removed, and what is signed in and stepped up with."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import structlog

from control.boundary import Call, authenticators, identity
from control.boundary.authenticators import Asserted, PasskeyRefused, PasskeySite
from control.boundary.refusal_log import name_account
from control.mail import letters
from control.policy import quotas
from control.policy.violations import refuse
from control.workflows.access import mail
from handlers import paging
from handlers.access import fresh_proof, recovery_codes, views
from handlers.access import sessions as session_handlers
from handlers.calls import SessionCall
from specserver import Conflict, Forbidden, Reply, Unauthenticated
from storage.access import passkeys, sessions, users
from storage.access import recovery_codes as stored_codes
from storage.access.passkeys import Passkey
from storage.access.users import User
from storage.errors import StateConflict

Body = dict[str, Any]

_log = structlog.get_logger("passkeys")
_ADD, _SIGN_IN, _STEP_UP = "add", "sign_in", "step_up"


def options(call: SessionCall, body: Body) -> Body:
    """Whoever has a second factor has passed it, or the boundary would not have let them in."""
    user = call.caller.user
    if not user.has_second_factor or "password" in body:
        fresh_proof.require(call, body.get("password"))
    known = passkeys.credential_ids(call.db, user.id)
    refuse(quotas.check_one_more_passkey(len(known)))
    site = _site(call)
    challenge = _challenge(call, _ADD, call.caller.session.id)
    about = (user.id, user.email, user.name)
    return _shown(authenticators.creation_options(site, challenge, about, known))


def create(call: SessionCall, body: Body) -> Reply:
    user = users.locked(call.db, call.caller.user.id)
    refuse(quotas.check_one_more_passkey(user.passkeys))
    made = _record(call, body)
    is_first = not user.has_second_factor
    passkeys.add(call.db, user, made)
    call.audit(target=made.id, detail={"backed_up": made.is_backed_up})
    _tell(call, user, made)
    call.caller.session.mfa_at = call.now
    codes = recovery_codes.renewed(call, user) if is_first else None
    answer = {**views.passkey(made), "recovery_codes": codes}
    return Reply.created(answer, f"/v1/me/passkeys/{made.id}")


def list_(call: SessionCall, limit: int, cursor: str | None = None) -> Body:
    after = paging.after(call, cursor)
    found = passkeys.page(call.db, call.caller.user.id, limit=limit, after=after)
    return paging.page(call, found, views.passkey)


def update(call: SessionCall, passkey: Passkey, body: Body) -> Body:
    passkey.name = body["name"]
    call.audit(target=passkey.id)
    return views.passkey(passkey)


def delete(call: SessionCall, passkey: Passkey) -> Reply:
    """Also the last one where an organization asks for a second factor: it then lets nobody in."""
    user = users.locked(call.db, call.caller.user.id)
    passkeys.remove(call.db, user, passkey)
    if not user.has_second_factor:
        stored_codes.forget(call.db, user.id)
        sessions.forget_second_factor(call.db, user.id)
    call.audit(target=passkey.id, detail={"left": user.passkeys})
    return Reply.no_content()


def sign_in_options(call: Call) -> Body:
    """The same for everybody: the authenticator knows whose passkeys it has."""
    challenge = _challenge(call, _SIGN_IN, "")
    return _shown(authenticators.request_options(_site(call), challenge))


def sign_in(call: Call, body: Body) -> Reply:
    try:
        passkey = _proven(call, body["credential"], _SIGN_IN, "")
    except PasskeyRefused as refused:
        _log.warning("sign_in.refused", wrong="passkey", why=str(refused), ip=call.ip)
        raise Unauthenticated(
            "the passkey is unknown here, or what it signed is wrong or too old; try again",
            code="sign_in_refused",
        ) from refused
    user = users.of_ids(call.db, [passkey.user_id])[passkey.user_id]
    told = {"user_id": user.id, "mfa": True, "passkey_id": passkey.id}
    asked = body.get("break_glass", False)
    return session_handlers.opened(call, user, mfa_at=call.now, told=told, is_break_glass=asked)


def step_up_options(call: SessionCall) -> Body:
    known = passkeys.credential_ids(call.db, call.caller.user.id)
    if not known:
        raise StateConflict("you have no passkey; add one with POST /v1/me/passkeys")
    challenge = _challenge(call, _STEP_UP, call.caller.session.id)
    return _shown(authenticators.request_options(_site(call), challenge, known))


def step_up(call: SessionCall, body: Body) -> Body:
    session = call.caller.session
    try:
        passkey = _proven(call, body["credential"], _STEP_UP, session.id)
    except PasskeyRefused as refused:
        raise _refused(call, refused) from refused
    session.mfa_at = call.now
    sessions.revoke_surplus(call.db, session, call.now)
    call.audit(target=session.id, detail={"passkey_id": passkey.id})
    return session_handlers.view(call, session)


def _record(call: SessionCall, body: Body) -> Passkey:
    credential, site = body["credential"], _site(call)
    try:
        challenge = _answered(call, credential, _ADD, call.caller.session.id)
        made = authenticators.registered(credential, challenge, site)
        _use_up(call, challenge)
    except PasskeyRefused as refused:
        raise _refused(call, refused) from refused
    return Passkey(
        name=body["name"],
        credential_id=made.credential_id,
        public_key=made.public_key,
        sign_count=made.sign_count,
        is_backup_eligible=made.is_backup_eligible,
        is_backed_up=made.is_backed_up,
    )


def _proven(call: Call, credential: Body, purpose: str, whose: str) -> Passkey:
    """The passkey that signed this; its use is noted, and the challenge used up.

    Of the caller, where it is for a session (`whose`), and else of anybody.
    """
    site = _site(call)
    challenge = _answered(call, credential, purpose, whose)
    passkey = passkeys.by_credential_id(call.db, credential["id"])
    if passkey is None or (whose and call.caller and passkey.user_id != call.caller.user.id):
        raise PasskeyRefused("it is unknown, or somebody else's")
    handle = credential["response"].get("userHandle")
    if handle != authenticators.base64url(passkey.user_id.encode()) and (handle or not whose):
        raise PasskeyRefused("it names somebody else")
    with _named_where_refused(call, passkey):
        found = _asserted(credential, challenge, site, passkey)
    _use_up(call, challenge)
    passkey.note_use(sign_count=found.sign_count, is_backed_up=found.is_backed_up, at=call.now)
    return passkey


@contextmanager
def _named_where_refused(call: Call, passkey: Passkey) -> Iterator[None]:
    """The audit log tells to whose account somebody tried to sign in."""
    try:
        yield
    except PasskeyRefused:
        name_account(call.exchange, passkey.user_id, "passkey")
        raise


def _asserted(credential: Body, challenge: bytes, site: PasskeySite, passkey: Passkey) -> Asserted:
    return authenticators.asserted(
        credential,
        challenge,
        site,
        public_key=passkey.public_key,
        sign_count=passkey.sign_count,
        is_backup_eligible=passkey.is_backup_eligible,
    )


def _answered(call: Call, credential: Body, purpose: str, whose: str) -> bytes:
    challenge = authenticators.challenge_in(credential)
    authenticators.require_challenge(call.services.sealer, challenge, purpose, whose, call.now)
    return challenge


def _use_up(call: Call, challenge: bytes) -> None:
    """Only what was signed rightly: nothing is written for a stranger's request."""
    until = call.now + timedelta(seconds=authenticators.CHALLENGE_TTL_S)
    try:
        passkeys.use_challenge(call.db, identity.token_sha256(challenge.hex()), until)
    except StateConflict as error:
        raise PasskeyRefused("its challenge was used already") from error


def _challenge(call: Call, purpose: str, whose: str) -> str:
    until = call.now + timedelta(seconds=authenticators.CHALLENGE_TTL_S)
    return authenticators.new_challenge(call.services.sealer, purpose, whose, until)


def _shown(public_key: Body) -> Body:
    return {"public_key": public_key, "valid_for_s": authenticators.CHALLENGE_TTL_S}


def _site(call: Call) -> PasskeySite:
    site = authenticators.site_of(call.services.settings.base_url)
    if site is None:
        raise Conflict(
            "browsers make passkeys for a host name with HTTPS only, or for localhost; the"
            " operator sets base_url to such an address",
            code="passkeys_unavailable",
        )
    return site


def _refused(call: Call, refused: PasskeyRefused) -> Forbidden:
    """The answer tells nothing of what is stored; the log tells an operator."""
    _log.warning("passkey.refused", why=str(refused), ip=call.ip)
    return Forbidden(
        "this passkey is not one of yours, or what it signed is wrong, too old or was used"
        " before; ask for new options and try again",
        code="passkey_refused",
    )


def _tell(call: Call, user: User, made: Passkey) -> None:
    base_url = call.services.settings.base_url
    letter = letters.passkey_added(
        to=user.email, name=made.name, at=call.now, ip=call.ip, base_url=base_url
    )
    mail.tell(call.db, call.services.sealer, letter)
