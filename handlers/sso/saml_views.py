"""A SAML connection as JSON: what to enter at the identity provider, and what is known of it."""

from datetime import datetime
from typing import Any

from control.sso import enforcement
from control.sso.saml import connecting
from control.sso.saml.known import CertificateFacts
from handlers import instants
from storage.sso.connections import SsoConnection

Json = dict[str, Any]


def saml_connection(connection: SsoConnection, base_url: str, now: datetime) -> Json:
    ours = connecting.provider_of(connection, base_url)
    return {
        "connection_id": connection.id,
        "name": connection.name,
        "status": connection.status,
        "service_provider": {
            "audience": ours.entity_id,
            "acs_url": ours.acs_url,
            "sign_in_url": enforcement.sign_in_url(base_url, connection.id),
        },
        "identity_provider": _identity_provider(connection, now),
        **{name: connection.settings[name] for name in connecting.CHOICES},
    }


def _identity_provider(connection: SsoConnection, now: datetime) -> Json | None:
    if connection.provider is None or connection.provider_read_at is None:
        return None
    told = connecting.metadata_of(connection)
    return {
        "issuer": told.entity_id,
        "sso_url": told.sso_url,
        "certificates": [_certificate(one, now) for one in connecting.certificates(connection)],
        "metadata_read_at": instants.timestamp(connection.provider_read_at),
    }


def _certificate(facts: CertificateFacts, now: datetime) -> Json:
    return {
        "sha256": facts.sha256,
        "subject": facts.subject,
        "not_before": instants.timestamp(facts.not_before),
        "not_after": instants.timestamp(facts.not_after),
        "is_valid": facts.not_before <= now < facts.not_after,
    }
