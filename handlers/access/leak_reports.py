"""Leak reports: what secret scanners found in public, by which API keys are suspended."""

from typing import Any

from control.boundary import Call, identity
from control.policy import leak_reports as rules
from control.workflows.access import key_suspensions
from specserver import Unauthenticated
from storage.access import key_leaks

Body = dict[str, Any]


def create(
    call: Call,
    body: list[Body],
    github_public_key_identifier: str | None = None,
    github_public_key_signature: str | None = None,
) -> list[Body]:
    _check_signature(call, github_public_key_identifier, github_public_key_signature)
    hashes = [_hash(match["token"]) for match in body]
    found = key_leaks.known(call.db, {each for each in hashes if each})
    call.audit(detail={"matches": len(body), "known": len(found)})
    for token in found:
        matches = [match for match, each in zip(body, hashes, strict=True) if each == token[1]]
        _act(call, token, matches)
    known = {token.token_hash for token in found}
    return [_label(match, is_ours=each in known) for match, each in zip(body, hashes, strict=True)]


def _check_signature(call: Call, identifier: str | None, signature: str | None) -> None:
    keys = call.services.settings.leak_report_keys
    if not rules.is_signed(keys, identifier, signature, call.exchange.body_bytes):
        raise Unauthenticated(
            "the report is not signed by a key that the operator of this service has named",
            code="signature_refused",
        )


def _act(call: Call, token: key_leaks.KnownToken, matches: list[Body]) -> None:
    """Places that are known were acted upon; a key that opens nothing any more needs nothing."""
    key, org = key_leaks.take(call.db, token)
    places = [rules.place_of(match) for match in matches]
    if key.revoked_at is not None:
        return
    unknown = [place for place in places if key_leaks.note(call.db, key, *place)]
    if not unknown or not key.is_live(call.now):
        return
    key_suspensions.leaked(call.db, call.services, key, org, unknown[0], call.now)
    source, _ = unknown[0]
    call.audit(target=key.id, org=org, detail={"name": key.name, "source": source})


def _hash(token: str) -> str | None:
    """None for what is no API key by its form, of which no database is asked."""
    return identity.token_sha256(token) if identity.token_kind(token) == "api_key" else None


def _label(match: Body, *, is_ours: bool) -> Body:
    return {
        "token_hash": identity.token_sha256(match["token"]),
        "token_type": match["type"],
        "label": "true_positive" if is_ours else "false_positive",
    }
