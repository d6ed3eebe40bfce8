"""What can go wrong between a cell and an ACME server, by whom it concerns."""

import ipaddress
import re
from typing import Final, Literal

from gateway.peer_texts import printable

Kind = Literal["server", "account", "limited", "order", "refused"]
"""`server`: all domains, for now. `account`: it must be registered anew. `limited`: too much was
asked. `order`: this order is over, another one may do. `refused`: this domain, for now."""

TEXT_MAX: Final = 600

_ADDRESS: Final = re.compile(
    r"(?<![\w.-])(?:\[(?P<bracketed>[^\]\s]+)\](?::\d+)?"
    r"|(?P<v4>\d+(?:\.\d+){3})(?::\d+)?(?![\w-]|\.\w)"
    r"|(?P<v6>[0-9A-Fa-f]*:[0-9A-Fa-f:.]*[0-9A-Fa-f:])(?:%\w+)?(?![\w-]))"
)


def without_addresses(text: str) -> str:
    """The text as a tenant may see it: the server may resolve names that are known inside only."""
    return _ADDRESS.sub(_hidden, text)


def _hidden(found: re.Match[str]) -> str:
    given = found["bracketed"] or found["v4"] or found["v6"]
    # What ends a sentence, or a name before its explanation, is not the address's.
    address = given.partition("%")[0]
    end = ":" if address.endswith(":") and not address.endswith("::") else ""
    try:
        ipaddress.ip_address(address.removesuffix(":") if end else address)
    except ValueError:
        return found[0]
    return f"an address{end}"


class AcmeError(Exception):
    """`retry_after_s` is how long the server wants to be left alone, where it says so.

    What the server says is in many of the texts, so each of them is made printable here.
    """

    def __init__(self, kind: Kind, text: str, retry_after_s: float | None = None) -> None:
        self.kind = kind
        self.text = printable(text, TEXT_MAX)
        super().__init__(self.text)
        self.retry_after_s = retry_after_s
