"""What the boundary has made sure of when a handler is called, as types; nothing runs here."""

from control.boundary import Call, Caller
from storage.access.organizations import Organization
from storage.access.sessions import UserSession


class SignedIn(Caller):
    """A caller with a user session."""

    session: UserSession


class CallerCall(Call):
    """Of an operation that asks for a credential."""

    caller: Caller


class SessionCall(CallerCall):
    """Of an operation for user sessions only."""

    caller: SignedIn


class OrgCall(CallerCall):
    """Of an operation within an organization."""

    org: Organization


class OwnerCall(OrgCall, SessionCall):
    """Of an operation within an organization for its owners, in a session."""
