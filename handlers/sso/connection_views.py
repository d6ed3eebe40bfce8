"""SSO connections as the JSON that openapi.yaml describes; no secrets."""

from typing import Any

from control.boundary import Call
from control.sso import enforcement
from control.sso.oidc import id_tokens, sign_ins
from handlers.instants import timestamp, timestamp_or_none
from handlers.sso.saml_views import saml_connection
from storage.sso.connections import SsoConnection

Json = dict[str, Any]


def sso_connection(call: Call, record: SsoConnection) -> Json:
    base_url = call.services.settings.base_url
    is_oidc = record.kind == "oidc"
    return {
        "id": record.id,
        "org_id": record.org_id,
        "kind": record.kind,
        "name": record.name,
        "status": record.status,
        "default_role": record.default_role,
        "highest_role": record.highest_role,
        "attribute_mapping": _mapping(record),
        "trusts_mfa": record.trusts_mfa,
        "sign_in_url": enforcement.sign_in_url(base_url, record.id),
        "oidc": _oidc(record, base_url) if is_oidc else None,
        "saml": None if is_oidc else _saml(call, record, base_url),
        "created_by": record.created_by,
        "created_at": timestamp(record.created_at),
        "last_used_at": timestamp_or_none(record.last_used_at),
        "refresh_failure": record.refresh_failure,
    }


def _mapping(record: SsoConnection) -> Json:
    return (
        {**id_tokens.MAPPING, **record.attribute_mapping}
        if record.kind == "oidc"
        else dict(record.attribute_mapping)
    )


def _oidc(record: SsoConnection, base_url: str) -> Json:
    return {
        "issuer": record.settings["issuer"],
        "client_id": record.settings["client_id"],
        "scopes": record.settings["scopes"],
        "redirect_uri": sign_ins.redirect_uri(base_url),
        "provider_read_at": timestamp_or_none(record.provider_read_at),
    }


def _saml(call: Call, record: SsoConnection, base_url: str) -> Json:
    shown = saml_connection(record, base_url, call.now)
    return {name: shown[name] for name in shown.keys() - {"connection_id", "name", "status"}}
