"""Addresses of people: changed, or verified, by whoever reads what is sent to them."""

from datetime import timedelta
from typing import Any

from control.boundary import Call, identity
from control.mail import letters
from control.policy import org_policy, quotas
from control.policy.violations import refuse
from control.sso import demands
from control.workflows.access import mail
from handlers.calls import SessionCall
from specserver import Conflict, Forbidden
from storage.access import account_tokens, organizations, users
from storage.access.account_tokens import EMAIL_CHANGE, PASSWORD_RESET, AccountToken
from storage.access.users import User
from storage.errors import RecordNotFound


def ask(call: SessionCall, email: str) -> None:
    """A letter to that address, unless it is somebody else's, which the answer does not tell."""
    user = call.caller.user
    _refuse_too_many(call, user, email)
    _refuse_domain(call, user, email)
    token = identity.new_email_token()
    made = _record(call, user, email, token.sha256)
    other = users.by_email(call.db, email)
    if other is None or other.id == user.id:
        letter = _letter(call, email, token.secret, made)
        mail.post_for_account(call.db, call.services.sealer, letter, made)


def _record(call: Call, user: User, email: str, token_hash: str) -> AccountToken:
    """The only one that is good from now on."""
    ttl_s = call.services.settings.email_change_ttl_s
    account_tokens.revoke_pending(call.db, user.id, EMAIL_CHANGE, call.now)
    return account_tokens.create(
        call.db,
        user.id,
        EMAIL_CHANGE,
        email=email,
        token_hash=token_hash,
        expires_at=call.now + timedelta(seconds=ttl_s),
    )


def _letter(call: Call, email: str, token: str, made: AccountToken) -> letters.Letter:
    base_url = call.services.settings.base_url
    return letters.email_change(to=email, token=token, until=made.expires_at, base_url=base_url)


def confirm(call: SessionCall, token: str) -> dict[str, Any]:
    """What changed by it, for the audit log."""
    user = users.locked(call.db, call.caller.user.id)
    found = _found(call, token)
    _refuse_domain(call, user, found.email)
    was = user.email
    found.use(call.now)
    user.verify(found.email, call.now)
    call.db.flush()
    if was != user.email:
        _tell_of_change(call, user, was)
    return {"email": user.email, "was": was}


def _found(call: SessionCall, token: str) -> AccountToken:
    """One that is good, of the user, who is locked."""
    found = account_tokens.by_hash(call.db, EMAIL_CHANGE, identity.token_sha256(token))
    if found.user_id != call.caller.user.id:
        raise RecordNotFound("no such token was sent")
    _refuse_ended(found.status(call.now))
    return found


def _tell_of_change(call: Call, user: User, was: str) -> None:
    """Whoever reads the former mailbox can do nothing more by what was sent there."""
    account_tokens.revoke_pending(call.db, user.id, PASSWORD_RESET, call.now)
    base_url = call.services.settings.base_url
    letter = letters.email_changed(to=was, at=call.now, ip=call.ip, base_url=base_url)
    mail.tell(call.db, call.services.sealer, letter)


def _refuse_too_many(call: Call, user: User, email: str) -> None:
    day_ago = call.now - timedelta(days=1)
    sent = account_tokens.count_since(call.db, user.id, EMAIL_CHANGE, day_ago)
    # Of their own address others use nothing up: what they ask for it is counted, and not sent.
    is_own = email.lower() == user.email
    to_them = 0 if is_own else account_tokens.count_to(call.db, email, EMAIL_CHANGE, day_ago)
    refuse(quotas.check_one_more_letter(max(sent, to_them)))


def _refuse_domain(call: Call, user: User, email: str) -> None:
    """Else an invite to an allowed address would let in any other, one change later."""
    for org, _role in organizations.of_user(call.db, user.id):
        if demands.is_demanded(org, user.email):
            raise Forbidden(
                f"the organization {org.name} enforces single sign-on for your address, which your"
                " identity provider decides on; an admin of it can remove you first",
                code="sso_required",
            )
        domains = org.allowed_email_domains
        if org.status == "open" and not org_policy.allows_address(email, domains):
            raise Forbidden(
                f"the organization {org.name} allows only email addresses of"
                f" {', '.join(sorted(domains or ()))}; leave it first, or choose such an address",
                code="email_domain_refused",
            )


def _refuse_ended(status: str) -> None:
    if status == "used":
        raise Conflict("this token was used already", code="email_token_used")
    if status != "pending":
        raise Conflict("this token is no longer valid; ask for another", code="email_token_expired")
