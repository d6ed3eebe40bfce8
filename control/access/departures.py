"""What ends with a membership: whoever removes somebody, it is the same."""

from datetime import datetime

from sqlalchemy.orm import Session

from specserver import Conflict
from storage.access import api_keys, invites, memberships, sessions
from storage.access.memberships import Membership


def end(db: Session, member: Membership, now: datetime) -> dict[str, int]:
    """They are no member from the next request on; how many keys and invites ended with that.

    Conflict for the last owner. Their sessions go on elsewhere, but for those that are held to the
    organization. What they made stays.
    """
    refuse_last_owner(db, member)
    revoked = api_keys.revoke_of(db, member.org_id, member.user_id, now)
    ended = invites.revoke_of(db, member.org_id, member.user_id, now)
    sessions.revoke_held_to(db, member.user_id, member.org_id, now)
    db.delete(member)
    db.flush()
    return {"api_keys_revoked": revoked, "invites_revoked": ended}


def refuse_last_owner(db: Session, member: Membership) -> None:
    """While a request lasts, nobody else changes the organization: the count stays true."""
    if member.role == "owner" and memberships.count(db, member.org_id, "owner") == 1:
        raise Conflict(
            "this is the last owner of the organization: make somebody else an owner first,"
            " or close the organization",
            code="last_owner",
        )
