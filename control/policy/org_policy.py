"""What an organization asks of sessions, API keys and addresses, beside what the service asks."""

from collections.abc import Collection
from datetime import datetime, timedelta

from control.policy.violations import Violation, wrong


def is_too_old(made_at: datetime, age_max_s: int | None, now: datetime) -> bool:
    """Whether a session or an API key is older than it may be to act; None: of any age."""
    return age_max_s is not None and made_at + timedelta(seconds=age_max_s) <= now


def allows_address(email: str, domains: Collection[str] | None) -> bool:
    """Whether the domain is one of them, itself and no name below it; None: any is."""
    return domains is None or email.rpartition("@")[2].lower() in domains


def check_address(email: str, domains: Collection[str] | None) -> list[Violation]:
    """Whether somebody with this address may be invited."""
    if allows_address(email, domains):
        return []
    message = (
        "the organization allows email addresses of these domains only:"
        f" {', '.join(sorted(domains or ()))}"
    )
    return [wrong("email", "allowed_email_domains", message)]


def check_key_life(
    expires_at: datetime | None, age_max_s: int | None, now: datetime
) -> list[Violation]:
    """Whether a new API key ends when the organization wants it to."""
    if age_max_s is None:
        return []
    last = now + timedelta(seconds=age_max_s)
    if expires_at is not None and expires_at <= last:
        return []
    message = (
        f"must be {last:%Y-%m-%dT%H:%M:%SZ} or earlier: API keys of this organization last"
        f" {age_max_s} s at most (api_key_max_age_s)"
    )
    return [wrong("expires_at", "maximum", f"/expires_at {message}")]
