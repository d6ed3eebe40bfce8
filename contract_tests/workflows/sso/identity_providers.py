"""Connections to identity providers, as tests of the work on them need them."""

from datetime import datetime, timedelta

from contract_tests.saml.provider import ISSUER, Signer
from control.sso.saml.known import SamlSettings
from storage.sso import connections
from storage.sso.connections import SsoConnection

NOWHERE = "http://127.0.0.1:9/metadata"


def expired_and_silent(org_id: str, at: datetime) -> SsoConnection:
    """By SAML, whose certificate has expired, and whose provider does not answer."""
    signer = Signer(begins=at - timedelta(days=60), ends=at - timedelta(days=1))
    known = SamlSettings(ISSUER, "https://idp.example.com/sso", (signer.pem,))
    made = SsoConnection(
        id=connections.new_id(),
        org_id=org_id,
        kind="saml",
        name=f"SAML {signer.begins:%f}",
        status="active",
        default_role="member",
        attribute_mapping={},
        settings={"metadata_url": NOWHERE},
        secrets_sealed=b"none",
        created_by="usr_x",
    )
    made.became_known(known.as_json(), None, at - timedelta(days=2))
    return made
