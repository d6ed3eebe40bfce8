"""Enforced single sign-on: an address of the domain signs in by its provider, and by nothing else.

Whether it is enforced depends on the domain alone, and is asked before a password is looked at, so
that it tells nothing about people. Owners keep a way in for when the provider fails: with a second
factor, and to be seen by all of them.
"""

from sqlalchemy.orm import Session

from control.mail import sso_letters
from control.services import Services
from control.workflows.access import mail
from specserver import Forbidden
from storage.access import organizations
from storage.access.sessions import UserSession
from storage.access.users import User
from storage.database import now
from storage.sso import break_glass, domains
from storage.sso.domains import SsoDomain


def refuse_other_ways(db: Session, email: str, base_url: str) -> None:
    """Raises Forbidden (`sso_required`) where the domain of the address enforces single sign-on."""
    domain = enforced(db, email)
    if domain is not None:
        raise required(domain, base_url)


def enforced(db: Session, email: str) -> SsoDomain | None:
    """The domain of the address where it enforces single sign-on."""
    domain = domains.of_address(db, email)
    return domain if domain is not None and domain.is_enforced else None


def required(domain: SsoDomain, base_url: str) -> Forbidden:
    """Where to sign in instead."""
    url = sign_in_url(base_url, domain.connection_id or "")
    return Forbidden(
        f"addresses of {domain.domain} sign in by single sign-on: open {url} in a browser, or run"
        " `menagerie login --sso`",
        code="sso_required",
        sign_in_url=url,
    )


def sign_in_url(base_url: str, connection_id: str) -> str:
    """The page that leads to the provider of a connection."""
    return f"{base_url.rstrip('/')}/account/sso/{connection_id}"


def let_in(db: Session, user: User, base_url: str, *, asked: bool, with_mfa: bool) -> bool:
    """Whether this sign-in of a known user, without a provider, breaks the glass.

    Raises Forbidden (`sso_required`) where single sign-on is enforced and they have not asked for
    this way, or it is not theirs: of owners of any organization, with a second factor. Else the
    owner of one could be locked out of it by whoever has the domain of their address. In the
    organization that enforces it, the session is good for nothing unless they own that one.
    """
    domain = enforced(db, user.email)
    if domain is None:
        return False
    if asked and with_mfa and organizations.count_owned(db, user.id) > 0:
        return True
    raise required(domain, base_url)


def tell_of_break_glass(
    db: Session, services: Services, user: User, session: UserSession, request_id: str
) -> None:
    """In the audit log of the organization that enforces it, and to all who own it.

    Where the user is no owner of it the session does nothing there, and nobody is told.
    """
    domain = enforced(db, user.email)
    told = None if domain is None else break_glass.note(db, domain, session, request_id)
    if domain is None or told is None:
        return
    for email in told.addresses:
        letter = sso_letters.break_glass(
            to=email,
            by=user.email,
            org=told.org_name,
            domain=domain.domain,
            at=now(db),
            ip=session.ip or "an unknown address",
            base_url=services.settings.base_url,
        )
        mail.notify(db, services.sealer, letter, told.org_id)
