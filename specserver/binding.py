"""Owns the plan of each operation: how a request becomes the arguments of its handler."""

import copy
import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

from specserver.acceptance import Acceptance
from specserver.bodies import Body
from specserver.operations import Operation
from specserver.parameters import Parameter, read_query
from specserver.problems import Invalid, NotFound
from specserver.requests import Request
from specserver.validation import Schemas, Violation

Arguments = dict[str, Any]

# OpenAPI leaves these three to their own rules, whatever the document says of them.
_NOT_PARAMETERS = frozenset({"accept", "content-type", "authorization"})
_MAX_SHOWN = 100
_IMMUTABLE = (str, int, float, bool, type(None))


class HandlerMismatchError(TypeError):
    """A handler asks for an argument that the document does not give."""


def argument_name(name: str) -> str:
    """`Idempotency-Key` and `idempotencyKey` are `idempotency_key` in Python."""
    snake = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    snake = re.sub(r"[^0-9A-Za-z]+", "_", snake).strip("_").lower()
    return "_" + snake if not snake or snake[0].isdigit() else snake


class Binding:
    """Made once per operation; `bind` is the validation of a request."""

    def __init__(self, operation: Operation, schemas: Schemas) -> None:
        parameters = [
            Parameter(document, schemas)
            for document in operation.document["parameters"]
            if document["in"] != "header" or document["name"].lower() not in _NOT_PARAMETERS
        ]
        self.names = {p: argument_name(p.name) for p in parameters}
        self._path = self._placed("path")
        self._headers = [(p, n, p.name.lower().encode()) for p, n in self._placed("header")]
        self._cookies = self._placed("cookie")
        self._query = Query(self._placed("query"), _security_names(operation))
        defaults = {n: p.default for p, n in self.names.items() if p.has_default}
        self._shared = {n: d for n, d in defaults.items() if isinstance(d, _IMMUTABLE)}
        self._copied = [(n, d) for n, d in defaults.items() if n not in self._shared]
        body = operation.document.get("requestBody")
        self._body = Body(body, schemas) if body else None
        self._acceptance = Acceptance(operation)
        self.argument_names = {*self.names.values(), *(["body"] if body else [])}

    def _placed(self, place: str) -> list[tuple[Parameter, str]]:
        return [(p, name) for p, name in self.names.items() if p.place == place]

    def bind(self, request: Request, path: dict[str, str], body: bytes) -> Arguments:
        """The typed arguments; raises 404, 406, 415, 400, or 422 with every violation."""
        arguments = self._shared.copy()
        for name, default in self._copied:
            arguments[name] = copy.deepcopy(default)
        for parameter, name in self._path:
            value, wrong = parameter.read((path[parameter.name],))
            if wrong:
                # No resource has such a name, so it is the same as one that is not there.
                raise NotFound
            arguments[name] = value
        headers = request.headers
        self._acceptance.check(headers.raw(b"accept"))
        violations: list[Violation] = []
        query = request.scope["query_string"]
        if query or self._query.required:
            self._query.bind(query, arguments, violations)
        if self._headers or self._cookies:
            self._bind_fields(request, arguments, violations)
        if self._body is not None:
            value, wrong = self._body.read(headers.raw(b"content-type"), body)
            violations += wrong
            arguments["body"] = value
        if violations:
            raise Invalid(_summary(violations), errors=violations)
        return arguments

    def _bind_fields(
        self, request: Request, arguments: Arguments, violations: list[Violation]
    ) -> None:
        for parameter, name, key in self._headers:
            raw = request.headers.raw(key)
            text = None if raw is None else raw.decode("latin-1")
            _bind_one(parameter, name, text, arguments, violations)
        for parameter, name in self._cookies:
            _bind_one(parameter, name, request.cookies.get(parameter.name), arguments, violations)


def _bind_one(
    parameter: Parameter,
    name: str,
    text: str | None,
    arguments: Arguments,
    violations: list[Violation],
) -> None:
    if text is None:
        if parameter.required:
            violations.append(parameter.violation("required", "is required"))
        return
    value, wrong = parameter.read((text,))
    if wrong:
        violations += wrong
    else:
        arguments[name] = value


class Query:
    """The query parameters of one operation; any other name is refused."""

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

    def bind(self, raw: bytes, arguments: Arguments, violations: list[Violation]) -> None:
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
        arguments: Arguments,
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


def _summary(violations: list[Violation]) -> str:
    if len(violations) > 1:
        return f"the request breaks {len(violations)} rules of this operation"
    only = violations[0]
    return f"{only.get('parameter') or only.get('pointer') or 'the body'} {only['message']}"


def _security_names(operation: Operation) -> set[str]:
    """Names of query parameters that carry a credential and so belong to security."""
    named = {name for requirement in operation.security for name in requirement}
    schemes = [operation.security_schemes.get(name, {}) for name in named]
    return {s["name"] for s in schemes if s.get("type") == "apiKey" and s.get("in") == "query"}


class HandlerCall:
    """Which of the bound arguments a handler takes, found out at start-up."""

    def __init__(
        self, operation: Operation, handler: Callable[..., Any], given: set[str], *, leading: bool
    ) -> None:
        self.handler = handler
        self.is_async = inspect.iscoroutinefunction(handler)
        # (the handler's spelling, the bound argument, whether it must be there)
        self.taken: list[tuple[str, str]] = []
        self.wanted: list[str] = []
        self.specials: list[str] = []
        unknown: list[str] = []
        parameters = list(inspect.signature(handler).parameters.values())
        for parameter in parameters:
            if parameter.kind is parameter.VAR_KEYWORD:
                named = {bound for _, bound in self.taken}
                self.taken += [(name, name) for name in sorted(given - named)]
            elif parameter.kind is not parameter.VAR_POSITIONAL:
                self._take(parameter, given, unknown)
        positional = [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
        if unknown and not (leading and unknown == positional[: len(unknown)]):
            raise HandlerMismatchError(
                f"the handler of {operation.id} asks for {', '.join(unknown)}, and the document "
                f"gives {', '.join(sorted(given)) or 'nothing'}"
            )

    def _take(self, parameter: inspect.Parameter, given: set[str], unknown: list[str]) -> None:
        name = parameter.name
        for bound in (name, name.removesuffix("_")):
            if bound in given:
                self.taken.append((name, bound))
                if parameter.default is parameter.empty:
                    self.wanted.append(name)
                return
        if name in ("exchange", "request"):
            self.specials.append(name)
        elif parameter.default is parameter.empty:
            unknown.append(name)

    def arguments(self, bound: Arguments, exchange: Any) -> Arguments:
        chosen = {name: bound[key] for name, key in self.taken if key in bound}
        for name in self.wanted:
            if name not in chosen:
                chosen[name] = None
        for name in self.specials:
            chosen[name] = exchange if name == "exchange" else exchange.request
        return chosen
