"""Alerts about the identity provider of a connection: before people cannot sign in by it."""

from datetime import datetime
from typing import Final

from sqlalchemy.orm import Session

from control.events import raise_, resolve
from control.policy import sso_connections as policy
from control.policy.alert_kinds import SSO_CERTIFICATE, SSO_PROVIDER
from control.sso.saml import connecting
from storage.access.organizations import Organization
from storage.sso.connections import SsoConnection

_BY_HAND: Final = (
    "nobody can sign in by the connection then: record the provider's new metadata before, or its"
    " URL (metadata_url), which is read every day"
)
_BY_URL: Final = (
    "nobody can sign in by the connection then: its metadata, which is read every day, names none"
    " that lasts longer; have the identity provider publish its next certificate"
)
_UNREAD: Final = (
    "what was read last counts meanwhile, so nobody can sign in any more once the provider changes"
    " its keys"
)


def look(db: Session, org: Organization, connection: SsoConnection, at: datetime) -> None:
    """Raise what is to be told of it now, and resolve what is over."""
    if connection.status == "disabled":
        forget(db, org, connection)
        return
    _look_at_reading(db, org, connection, at)
    _look_at_certificates(db, org, connection, at)


def forget(db: Session, org: Organization, connection: SsoConnection) -> None:
    """For a connection that ends: nobody has to look after its provider any more."""
    resolve(db, org, [SSO_PROVIDER, SSO_CERTIFICATE], cause=connection.id)


def _look_at_reading(
    db: Session, org: Organization, connection: SsoConnection, at: datetime
) -> None:
    since = connection.refresh_failed_since
    if since is None:
        resolve(db, org, [SSO_PROVIDER], cause=connection.id)
    elif since <= at - policy.TOLD_OF_FAILURE_AFTER:
        title = f"the identity provider of the SSO connection {connection.name} cannot be read"
        reason = f"{connection.refresh_failure}; {_UNREAD}"
        raise_(db, org, SSO_PROVIDER, "warning", title, reason, cause=connection.id)


def _look_at_certificates(
    db: Session, org: Organization, connection: SsoConnection, at: datetime
) -> None:
    ends = [one.not_after for one in connecting.certificates(connection)]
    severity = policy.severity_of_end(max(ends), at) if ends else None
    if severity is None:
        resolve(db, org, [SSO_CERTIFICATE], cause=connection.id)
        return
    end = max(ends)
    does = "expires" if end > at else "expired"
    which = f"the last signing certificate of the SSO connection {connection.name}"
    title = f"{which} {does} on {end:%Y-%m-%d}"
    reason = _BY_URL if connection.settings.get("metadata_url") else _BY_HAND
    raise_(db, org, SSO_CERTIFICATE, severity, title, reason, cause=connection.id)
