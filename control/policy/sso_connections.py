"""Rules of SSO connections: what may be said of each kind."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from control.policy.violations import Violation, wrong

DEFAULT_ROLE: Final = "member"
TOLD_OF_FAILURE_AFTER: Final = timedelta(days=1)
"""For so long a provider may be unreadable before anybody is told."""
WARNS_BEFORE_END: Final = timedelta(days=30)
CRITICAL_BEFORE_END: Final = timedelta(days=7)
_KINDS: Final = ("oidc", "saml")


def severity_of_end(end: datetime, at: datetime) -> str | None:
    """Of the alert that the last certificate of a provider ends; None: it is too early for one."""
    if end > at + WARNS_BEFORE_END:
        return None
    return "warning" if end > at + CRITICAL_BEFORE_END else "critical"


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
