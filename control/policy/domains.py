"""Custom domains: which host names an instance may be given."""

import re
from typing import Final

from control.policy.violations import Violation

_LABEL: Final = re.compile(r"(?!-)[a-z0-9-]{1,63}(?<!-)")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
"""A last label by which a client takes the whole name for an IPv4 address (WHATWG URL, 3.5)."""
_NAME_MAX: Final = 240
"""Some less than DNS allows: a cell names files after it, of at most 255 bytes."""


def normal_hostname(text: str) -> str:
    """As it is kept and compared: in lower case, without the dot at the end."""
    return text.lower().removesuffix(".")


def check_hostname(hostname: str, instance_domain: str) -> list[Violation]:
    """Everything wrong with a host name in its normal form."""
    if len(hostname) > _NAME_MAX:
        message = f"the domain has {len(hostname)} characters; at most {_NAME_MAX} are allowed"
        return [_wrong(message)]
    wrong = _check_form(hostname)
    if not wrong and f".{hostname}".endswith(f".{instance_domain}"):
        wrong = [_wrong(f"names under {instance_domain} are reserved; use a domain of your own")]
    return wrong


def _check_form(hostname: str) -> list[Violation]:
    labels = hostname.split(".")
    if labels[0] == "*":
        return [_wrong("a wildcard is not a valid domain; add each host separately")]
    if not hostname.isascii():
        return [_wrong("the domain must be in ASCII (Punycode) form, with labels such as xn--…")]
    if not all(map(_LABEL.fullmatch, labels)):
        return [_wrong("the domain is not a valid host name")]
    if len(labels) < 2 or _NUMBER.fullmatch(labels[-1]):  # noqa: PLR2004 -- a host and a domain
        return [_wrong("the domain must be a full host name, such as db.example.com")]
    return []


def _wrong(message: str) -> Violation:
    return Violation(pointer="/hostname", keyword="format", message=message)
