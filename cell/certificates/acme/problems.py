"""What can go wrong between a cell and an ACME server, by whom it concerns."""

from typing import Literal

Kind = Literal["server", "account", "limited", "order", "refused"]
"""`server`: all domains, for now. `account`: it must be registered anew. `limited`: too much was
asked. `order`: this order is over, another one may do. `refused`: this domain, for now."""


class AcmeError(Exception):
    """`retry_after_s` is how long the server wants to be left alone, where it says so."""

    def __init__(self, kind: Kind, text: str, retry_after_s: float | None = None) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text
        self.retry_after_s = retry_after_s
