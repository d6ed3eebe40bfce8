"""Which subjects of an issuer's tokens may be trusted, and which a pattern of them takes.

A subject such as `repo:acme/shop:ref:refs/heads/main` has parts with colons between them. In a
pattern, `*` stands for any characters of one part.
"""

from collections.abc import Mapping
from typing import Final

from control.policy.violations import Violation, wrong

WILDCARD: Final = "*"
# What is hosted for everybody lets everybody choose what subjects of their own begin with. These
# are the beginnings that name an owner whom nobody else can be.
OWNED: Final[Mapping[str, tuple[str, ...]]] = {
    "https://token.actions.githubusercontent.com": (
        "repo:",
        "repository:",
        "repository_id:",
        "repository_owner:",
        "repository_owner_id:",
    ),
    "https://gitlab.com": ("project_path:",),
}


def check_trust(issuer: str, subject: str, issuers: tuple[str, ...]) -> list[Violation]:
    """Everything wrong with trusting this subject of this issuer's, where `issuers` are allowed."""
    return [*_check_issuer(issuer, issuers), *_check_subject(issuer, subject)]


def accepts(pattern: str, subject: str) -> bool:
    """Whether the subject of a token is the one that is trusted, or one of them."""
    parts, given = pattern.split(":"), subject.split(":")
    return len(parts) == len(given) and all(map(_accepts_part, parts, given))


def _accepts_part(pattern: str, text: str) -> bool:
    """In one pass: a regular expression with many wildcards can take for ever to fail."""
    first, *others = pattern.split(WILDCARD)
    if not others:
        return text == pattern
    *middle, last = others
    at, end = len(first), len(text) - len(last)
    if at > end or not (text.startswith(first) and text.endswith(last)):
        return False
    for each in middle:
        found = text.find(each, at, end)
        if found < 0:
            return False
        at = found + len(each)
    return True


def _check_issuer(issuer: str, issuers: tuple[str, ...]) -> list[Violation]:
    if issuer in issuers:
        return []
    if not issuers:
        return [wrong("issuer", "enum", "this service trusts no issuers; ask its operator for one")]
    message = f"must be one of those that this service trusts: {', '.join(issuers)}"
    return [wrong("issuer", "enum", message)]


def _check_subject(issuer: str, subject: str) -> list[Violation]:
    owned = OWNED.get(issuer, ())
    if owned and not any(subject.startswith(each) for each in owned):
        message = (
            f"must begin with {', '.join(owned[:-1])} or {owned[-1]}"
            if len(owned) > 1
            else f"must begin with {owned[0]}"
        )
        reason = "anybody can have the issuer sign a subject that begins otherwise"
        return [wrong("subject", "owner", f"{message}: {reason}")]
    owner, slash, _ = subject.partition("/")
    if WILDCARD in owner:
        where = "after the first /" if slash else "after a /, of which it has none"
        message = f"can have a {WILDCARD} only {where}: before it is whose job it is"
        return [wrong("subject", "wildcard", message)]
    return []
