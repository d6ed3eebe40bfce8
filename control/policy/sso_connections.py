"""Rules of SSO connections: what may be said of each kind."""

from collections.abc import Mapping
from typing import Any, Final

from control.policy.violations import Violation, wrong

DEFAULT_ROLE: Final = "member"
_KINDS: Final = ("oidc", "saml")


def check_new(body: Mapping[str, Any]) -> list[Violation]:
    """Of exactly one kind, with all that it needs."""
    given = [kind for kind in _KINDS if kind in body]
    if len(given) != 1:
        return [wrong("", "kind", "must have either oidc or saml, and not both")]
    if given == ["oidc"]:
        needed = ("issuer", "client_id", "client_secret")
        return [
            wrong(f"oidc/{each}", "required", f"is required: the {each} of the provider")
            for each in needed
            if each not in body["oidc"]
        ]
    return check_metadata(body["saml"])


def check_change(kind: str, body: Mapping[str, Any]) -> list[Violation]:
    other = next(each for each in _KINDS if each != kind)
    if other in body:
        return [
            wrong(other, "kind", f"the connection is of {kind}; create another one for {other}")
        ]
    return check_metadata(body.get("saml", {}))


def check_metadata(saml: Mapping[str, Any]) -> list[Violation]:
    if saml.get("metadata_url") and "metadata_xml" in saml:
        message = "give the metadata either by its URL or as XML: leave one out"
        return [wrong("saml/metadata_xml", "kind", message)]
    return []
