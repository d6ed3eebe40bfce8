"""What an organization that enforces single sign-on demands of sessions that act in it."""

from typing import TYPE_CHECKING

from specserver import Forbidden
from storage.access.organizations import Organization
from storage.access.sessions import UserSession
from storage.access.users import User
from storage.sso.domains import domain_of

if TYPE_CHECKING:  # callers are authorized by this
    from control.boundary.callers import Caller


def refuse_barred(caller: "Caller", org: Organization) -> None:
    """Raises Forbidden (`sso_required`) for a session that began in another way.

    Of an owner it may have broken the glass. API keys act as before.
    """
    session = caller.session
    if session is None or not is_demanded(org, caller.user.email) or is_by_sso(session, org):
        return
    if session.is_break_glass and caller.role == "owner":
        return
    raise Forbidden(
        f"the organization demands single sign-on of addresses of {domain_of(caller.user.email)}:"
        " sign out, and sign in with your identity provider (`menagerie login --sso`)",
        code="sso_required",
    )


def refuse_joining(
    org: Organization, user: User, session: UserSession | None, base_url: str
) -> None:
    """As `refuse_barred`, of somebody who is about to be a member."""
    if is_demanded(org, user.email) and not (session and is_by_sso(session, org)):
        raise Forbidden(
            f"addresses of {domain_of(user.email)} join this organization by single sign-on:"
            f" sign in at {base_url.rstrip('/')}/account/sso",
            code="sso_required",
        )


def is_demanded(org: Organization, email: str) -> bool:
    """Whether the organization itself enforces single sign-on for the address."""
    return domain_of(email) in (org.sso_enforced_domains or ())


def is_by_sso(session: UserSession, org: Organization) -> bool:
    """Whether the session began by the organization's own identity provider."""
    return session.sso_org_id == org.id
