"""SAML connections as identity providers and the enterprise page ask for them."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from storage import tenancy
from storage.errors import RecordNotFound
from storage.sso.connections import SsoConnection


def shown(db: Session, connection_id: str) -> SsoConnection:
    """The connection, for whoever may read what everybody may; no lock."""
    rows = select(SsoConnection).where(
        SsoConnection.id == connection_id, SsoConnection.kind == "saml"
    )
    with tenancy.across(db, "an identity provider reads our metadata, and is nobody's"):
        found = db.scalars(rows).one_or_none()
    if found is None:
        raise RecordNotFound("SAML connection not found")
    return found


def statuses(db: Session, org_id: str) -> list[str]:
    """Of each of the organization's connections, of whatever kind."""
    return list(db.scalars(select(SsoConnection.status).where(SsoConnection.org_id == org_id)))
