"""Owns the query string of an operation: known names bound, unknown ones refused."""

from typing import Any

from specserver.parameters import Parameter, read_query
from specserver.validation import Violation

# A name is the sender's, and as long as they like.
_MAX_SHOWN = 100


class Query:
    """The query parameters of one operation; any other name is refused.

    `ignored` are names that belong to security.
    """

    __slots__ = ("_ignored", "_parameters", "required")

    def __init__(self, parameters: list[tuple[Parameter, str]], ignored: set[str]) -> None:
        self._parameters = {p.name: (p, name) for p, name in parameters}
        self.required = [p for p, _ in parameters if p.required]
        self._ignored = ignored

    def bind(self, raw: bytes, arguments: dict[str, Any], violations: list[Violation]) -> None:
        texts = read_query(raw)
        for sent, values in texts.items():
            found = self._parameters.get(sent)
            if found is not None:
                value, wrong = found[0].read(values)
                if wrong:
                    violations += wrong
                else:
                    arguments[found[1]] = value
            elif sent not in self._ignored:
                violations.append(_unknown(sent))
        for parameter in self.required:
            if parameter.name not in texts:
                violations.append(parameter.violation("required", "is required"))


def _unknown(name: str) -> Violation:
    shown = name if len(name) <= _MAX_SHOWN else name[:_MAX_SHOWN] + "…"
    return {"parameter": shown, "keyword": "unknown", "message": "is not a known query parameter"}
