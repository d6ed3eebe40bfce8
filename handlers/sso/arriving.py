"""A verified identity becomes a session: of whichever protocol, it begins and is told alike."""

from control.boundary import Call
from control.sso import arrivals
from control.sso.arrivals import Arrival, VerifiedIdentity
from handlers.access import sessions
from specserver import Reply
from storage.access import organizations
from storage.events import audit
from storage.sso.connections import SsoConnection


def signed_in(call: Call, connection: SsoConnection, identity: VerifiedIdentity) -> Reply:
    """A session of whoever that is, held to the connection's organization.

    The transaction has entered the organization (`connections.enter`, or `sign_ins.take`).
    """
    arrival = arrivals.arrive(call.db, connection, identity, call.now)
    if arrival.member_role is not None:
        _tell_of_member(call, connection, arrival)
    has_mfa = identity.has_mfa and connection.trusts_mfa
    told = {"user_id": arrival.user.id, "connection_id": connection.id, "mfa": has_mfa}
    return sessions.opened(
        call,
        arrival.user,
        mfa_at=call.now if has_mfa else None,
        told={**told, **arrival.told},
        by=connection,
        org=organizations.fetch(call.db, connection.org_id),
    )


def _tell_of_member(call: Call, connection: SsoConnection, arrival: Arrival) -> None:
    audit.append(
        call.db,
        connection.org_id,
        "sso.member_add",
        actor_kind="user",
        actor_id=arrival.user.id,
        target=arrival.user.id,
        request_id=call.request_id,
        ip=call.ip,
        detail={"connection_id": connection.id, "role": arrival.member_role},
    )
