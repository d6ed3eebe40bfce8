"""A verified identity becomes a session: of whichever protocol, it begins and is told alike."""

from control import events
from control.boundary import Call, identity
from control.boundary.addresses import rate_key
from control.sso import arrivals
from control.sso.arrivals import Arrival, VerifiedIdentity
from handlers.access import sessions
from specserver import Reply
from storage.access import organizations
from storage.events import audit
from storage.sso.connections import SsoConnection


def signed_in(call: Call, connection: SsoConnection, verified: VerifiedIdentity) -> Reply:
    """A session of whoever that is, held to the connection's organization.

    The transaction has entered the organization (`connections.enter`, or `sign_ins.take`).
    """
    arrival = arrivals.arrive(call.db, connection, verified, rate_key(call.ip), call.now)
    if arrival.member_role is not None:
        _tell_of_member(call, connection, arrival)
    has_mfa = verified.has_mfa and connection.trusts_mfa
    token = identity.new_session_token()
    # A second factor that was passed long ago, at the provider, is no fresh one here.
    passed_at = min(call.now, verified.authenticated_at or call.now)
    session = sessions.record(call, arrival.user, token, passed_at if has_mfa else None)
    session.sso_org_id, session.sso_connection_id = connection.org_id, connection.id
    answer = sessions.begun(call, session, token)
    told = {"user_id": arrival.user.id, "connection_id": connection.id, "mfa": has_mfa}
    org = organizations.fetch(call.db, connection.org_id)
    call.audit(target=session.id, detail={**told, **arrival.told}, org=org)
    return answer


def _tell_of_member(call: Call, connection: SsoConnection, arrival: Arrival) -> None:
    user, role = arrival.user, arrival.member_role
    added = {"user_id": user.id, "email": user.email, "role": role, "source": "sso"}
    events.publish(call.db, connection.org_id, "org.member.added.v1", added)
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
