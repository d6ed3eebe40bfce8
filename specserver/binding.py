"""Owns the plan of each operation: how a request becomes the arguments of its handler."""

import copy
import re
from typing import Any

import orjson

from specserver.acceptance import Acceptance, media_types
from specserver.bodies import Body
from specserver.document import DocumentInvalid
from specserver.operations import Operation
from specserver.parameters import Parameter
from specserver.problems import Invalid, NotFound
from specserver.queries import Query
from specserver.requests import Request
from specserver.validation import MAX_VIOLATIONS, Schemas, Violation

Arguments = dict[str, Any]

# OpenAPI leaves these three to their own rules, whatever the document says of them.
_NOT_PARAMETERS = frozenset({"accept", "content-type", "authorization"})
# Who sends one wants nothing done where it does not hold, so it is not passed over in silence.
_CONDITIONS = ("If-Match", "If-Unmodified-Since", "If-None-Match")
# Reading is done all the same where nobody looks at it, and only answers more than was asked.
_HARMLESS_IN_READING = "If-None-Match"
_READING = frozenset({"GET", "HEAD"})
_IMMUTABLE = (str, int, float, bool, type(None))


def argument_name(name: str) -> str:
    """`Idempotency-Key` and `idempotencyKey` are `idempotency_key` in Python."""
    snake = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    snake = re.sub(r"[^0-9A-Za-z]+", "_", snake).strip("_").lower()
    return "_" + snake if not snake or snake[0].isdigit() else snake


class Bindings:
    """Makes bindings. Operations that read the same things share one.

    A document repeats itself, and what many operations use stays in the processor's cache: with
    500 operations this is a third of a request's cost.
    """

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas
        self._parameters: dict[bytes, Parameter] = {}
        self._bindings: dict[bytes, Binding] = {}

    def of(self, operation: Operation) -> "Binding":
        documents = [
            document
            for document in operation.document["parameters"]
            if document["in"] != "header" or document["name"].lower() not in _NOT_PARAMETERS
        ]
        body = operation.document.get("requestBody")
        answered, ignored = media_types(operation), _security_names(operation)
        unheeded = _unheeded_conditions(operation.method, documents)
        key = orjson.dumps([documents, body, sorted(answered), sorted(ignored), unheeded])
        if key not in self._bindings:
            try:
                parameters = [self._parameter(document) for document in documents]
                self._bindings[key] = Binding(
                    parameters,
                    Body(body, self._schemas) if body else None,
                    Acceptance(answered),
                    ignored,
                    unheeded,
                )
            except ValueError as error:
                raise DocumentInvalid(f"{operation.id}: {error}") from None
        return self._bindings[key]

    def _parameter(self, document: dict[str, Any]) -> Parameter:
        key = orjson.dumps(document)
        if key not in self._parameters:
            self._parameters[key] = Parameter(document, self._schemas)
        return self._parameters[key]


class Binding:
    """How the requests of an operation are read; `bind` is their validation."""

    __slots__ = (
        "_acceptance",
        "_body",
        "_cookies",
        "_copied",
        "_headers",
        "_path",
        "_query",
        "_shared",
        "_unheeded",
        "argument_names",
    )

    def __init__(
        self,
        parameters: list[Parameter],
        body: Body | None,
        acceptance: Acceptance,
        ignored: set[str],
        unheeded: list[str],
    ) -> None:
        names = [argument_name(p.name) for p in parameters] + (["body"] if body else [])
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"two parameters are both called {', '.join(sorted(twice))}")
        named = list(zip(parameters, names, strict=False))
        self.argument_names = set(names)
        self._path = [(p, n) for p, n in named if p.place == "path"]
        self._headers = [(p, n, p.name.lower().encode()) for p, n in named if p.place == "header"]
        self._cookies = [(p, n) for p, n in named if p.place == "cookie"]
        self._query = Query([(p, n) for p, n in named if p.place == "query"], ignored)
        defaults = {n: p.default for p, n in named if p.has_default}
        self._shared = {n: d for n, d in defaults.items() if isinstance(d, _IMMUTABLE)}
        self._copied = [(n, d) for n, d in defaults.items() if n not in self._shared]
        self._body = body
        self._acceptance = acceptance
        self._unheeded = [(name, name.lower().encode()) for name in unheeded]

    def bind(self, request: Request, path: dict[str, str], body: bytes) -> Arguments:
        """The typed arguments; raises 404, 406, 415, 400, or 422 with the violations."""
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
        for condition, key in self._unheeded:
            if headers.raw(key) is not None:
                violations.append(_unheeded(condition))
        more = False
        if self._body is not None:
            value, wrong = self._body.read(headers, body)
            more = getattr(wrong, "may_be_more", False)
            violations += wrong
            arguments["body"] = value
        if violations:
            raise _invalid(violations, may_be_more=more)
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


def _unheeded_conditions(method: str, documents: list[dict[str, Any]]) -> list[str]:
    """Conditions that the operation does not say it looks at."""
    declared = {one["name"].lower() for one in documents if one["in"] == "header"}
    return [
        name
        for name in _CONDITIONS
        if name.lower() not in declared
        and not (method in _READING and name == _HARMLESS_IN_READING)
    ]


def _unheeded(condition: str) -> Violation:
    message = "is not supported by this operation, which would ignore it; leave it out"
    return {"parameter": condition, "keyword": "unsupported", "message": message}


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


def _invalid(violations: list[Violation], *, may_be_more: bool) -> Invalid:
    told = violations[:MAX_VIOLATIONS]
    if may_be_more or len(violations) >= MAX_VIOLATIONS:
        return Invalid(
            f"the request is invalid in {_places(len(told))} or more; `errors` holds the first"
            " that were found, and there may be others",
            errors=told,
        )
    if len(told) > 1:
        return Invalid(f"the request is invalid in {_places(len(told))}", errors=told)
    only = told[0]
    where = only.get("parameter") or only.get("pointer") or "the body"
    return Invalid(f"{where} {only['message']}", errors=told)


def _places(count: int) -> str:
    return "1 place" if count == 1 else f"{count} places"


def _security_names(operation: Operation) -> set[str]:
    """Names of query parameters that carry a credential and so belong to security."""
    named = {name for requirement in operation.security for name in requirement}
    schemes = [operation.security_schemes.get(name, {}) for name in named]
    return {s["name"] for s in schemes if s.get("type") == "apiKey" and s.get("in") == "query"}
