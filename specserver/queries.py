"""Owns the query string of an operation: known names bound, unknown ones refused."""

from collections.abc import Sequence
from typing import Any

from specserver.parameters import Parameter, read_query
from specserver.validation import Violation

# A name is the sender's, and as long as they like.
_MAX_SHOWN = 100


class Query:
    """The query parameters of one operation; any other name is refused.

    `ignored` are names that belong to security.
    """

    __slots__ = ("_ignored", "_parameters", "_plain", "_spread", "required")

    def __init__(self, parameters: list[tuple[Parameter, str]], ignored: set[str]) -> None:
        self._parameters = dict(parameters)
        self.required = [p for p, _ in parameters if p.required]
        self._ignored = ignored
        self._plain = {p.name: (p, name) for p, name in parameters if not _spread(p)}
        self._spread = {
            _member_name(p, member): (p, member)
            for p, _ in parameters
            if _spread(p)
            for member in p.members
        }

    def bind(self, raw: bytes, arguments: dict[str, Any], violations: list[Violation]) -> None:
        texts = read_query(raw)
        spread: dict[Parameter, list[str]] = {}
        for sent, values in texts.items():
            found = self._plain.get(sent)
            if found is not None:
                value, wrong = found[0].read(values)
                if wrong:
                    violations += wrong
                else:
                    arguments[found[1]] = value
            elif sent in self._spread:
                parameter, member = self._spread[sent]
                for value in values:
                    spread.setdefault(parameter, []).extend([member, value])
            elif sent not in self._ignored:
                violations.append(_unknown(sent))
        for parameter, pairs in spread.items():
            self._bind_object(parameter, pairs, arguments, violations)
        for parameter in self.required:
            if parameter.name not in texts and parameter not in spread:
                violations.append(parameter.violation("required", "is required"))

    def _bind_object(
        self,
        parameter: Parameter,
        pairs: Sequence[str],
        arguments: dict[str, Any],
        violations: list[Violation],
    ) -> None:
        value, wrong = parameter.read_members(pairs)
        if wrong:
            violations += wrong
        else:
            arguments[self._parameters[parameter]] = value


def _spread(parameter: Parameter) -> bool:
    """An object whose members are parameters of their own (`filter[name]=` or `name=`)."""
    return parameter.is_object and (parameter.style == "deepObject" or parameter.explode)


def _member_name(parameter: Parameter, member: str) -> str:
    return f"{parameter.name}[{member}]" if parameter.style == "deepObject" else member


def _unknown(name: str) -> Violation:
    shown = name if len(name) <= _MAX_SHOWN else name[:_MAX_SHOWN] + "…"
    return {"parameter": shown, "keyword": "unknown", "message": "is not a known query parameter"}
