"""Owns standard answers: what an operation answers because of what it declares, and all say alike.

A document lists them under `x-standard`:

    headers: {X-Request-Id: {$ref: …}}          # of every response
    answers:
      - when: {header: If-Match}                # all conditions hold
        responses: {'412': {$ref: …, description: why this operation answers so}}
        headers: {ETag: {$ref: …}}              # of its successes

Conditions are `method` (some of these), `path`, `query` and `header` (a parameter of this name, or
`true` for any), `body`, `content` (of a success), `security` (of this scheme, or `true` for any)
and `x-…`, what the operation says there: a value, one of a list, members, or `true` for anything.

What follows from them is written nowhere else: an operation that answers one of these statuses for
a reason of its own repeats the `$ref` with a `description`, which is put before the others.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from specserver.written import DocumentInvalid, target

TABLE: Final = "x-standard"
METHODS: Final = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
_PLACES: Final = frozenset({"path", "query", "header"})
_KEYS: Final = frozenset({"when", "responses", "headers"})
_WORDS: Final = _PLACES | {"method", "body", "content", "security"}
Json = dict[str, Any]


def complete(document: Json) -> Json:
    """The document with all that follows, and without its table; one without a table as it is.

    Raises DocumentInvalid where an operation says by hand what follows, or contradicts it.
    """
    if TABLE not in document:
        return document
    table = document[TABLE]
    faults = list(_table_faults(table))
    whole = {key: value for key, value in document.items() if key != TABLE}
    common = table.get("headers", {})
    paths: Json = {}
    for path, item in document.get("paths", {}).items():
        paths[path] = dict(item)
        for method in METHODS:
            if method in item and not faults:
                declared = _Declared(document, path, method, item)
                faults += declared.faults(table)
                paths[path][method] = declared.completed(table)
    if faults:
        raise DocumentInvalid("; ".join(faults))
    components = document.get("components", {})
    shared = {
        name: _with_headers(response, common)
        for name, response in components.get("responses", {}).items()
    }
    return {**whole, "paths": paths, "components": {**components, "responses": shared}}


class _Declared:
    """What one operation declares, and what follows from that."""

    def __init__(self, document: Json, path: str, method: str, item: Json) -> None:
        self._document = document
        self._operation: Json = item[method]
        self._method = method.upper()
        self.id = self._operation.get("operationId", f"{self._method} {path}")
        parameters = [*item.get("parameters", ()), *self._operation.get("parameters", ())]
        self._parameters = [self._followed(one) for one in parameters]
        self._written: Json = self._operation.get("responses", {})

    def completed(self, table: Json) -> Json:
        """The operation with its standard answers and headers, by status."""
        answers = dict(self._written)
        reasons: dict[str, list[str | None]] = {}
        for status, reference in self._standard(table):
            own = self._written.get(status, {}).get("description")
            known = reasons.setdefault(status, [own] if own else [])
            known.append(reference.get("description"))
            answers[status] = {"$ref": reference["$ref"]}
        for status, given in reasons.items():
            if any(given):
                # A rule that gives none means what the response says of itself.
                itself = self._followed(answers[status]).get("description", "")
                said = dict.fromkeys(" ".join((one or itself).split()) for one in given)
                answers[status]["description"] = self._filled(" ".join(said))
        common, own = table.get("headers", {}), self._headers(table)
        responses = {
            status: answers[status]
            if "$ref" in answers[status]
            else _with_headers(answers[status], {**common, **(own if status < "3" else {})})
            for status in sorted(answers)
        }
        return {**self._operation, "responses": responses}

    def faults(self, table: Json) -> Iterator[str]:
        """What is written by hand and follows, or differs from what follows."""
        meant = {status: reference["$ref"] for status, reference in self._standard(table)}
        headers = {*table.get("headers", {}), *self._headers(table)}
        for status, response in self._written.items():
            if status in meant and not (
                response.get("$ref") == meant[status] and response.get("description")
            ):
                yield (
                    f"{self.id}: its {status} is standard: leave it out, or write the same $ref,"
                    f" {meant[status]}, with a description of what is particular"
                )
            if status not in meant and set(response.get("headers", ())) & headers:
                yield f"{self.id}: the headers of its {status} are standard: leave them out"

    def _standard(self, table: Json) -> Iterator[tuple[str, Json]]:
        for rule in table.get("answers", ()):
            if self._fits(rule.get("when", {})):
                yield from rule.get("responses", {}).items()

    def _headers(self, table: Json) -> Json:
        found: Json = {}
        for rule in table.get("answers", ()):
            if self._fits(rule.get("when", {})):
                found |= rule.get("headers", {})
        return found

    def _fits(self, when: Json) -> bool:
        return all(self._holds(word, wanted) for word, wanted in when.items())

    def _holds(self, word: str, wanted: Any) -> bool:
        if word in _PLACES:
            return _is(wanted, [one["name"] for one in self._parameters if one["in"] == word])
        if word == "security":
            asked: Json = self._document | self._operation
            return _is(wanted, [name for one in asked.get("security", ()) for name in one])
        if word == "method":
            return self._method in wanted
        if word == "body":
            return ("requestBody" in self._operation) is wanted
        if word == "content":
            return any(self._contents()) is wanted
        return _says(self._operation.get(word), wanted)

    def _contents(self) -> Iterator[bool]:
        for status, response in self._written.items():
            if status.startswith("2"):
                yield bool(self._followed(response).get("content"))

    def _followed(self, node: Json) -> Json:
        while "$ref" in node:
            node = target(self._document, node["$ref"])
        return node

    def _filled(self, reason: str) -> str:
        """With the members of x-authorize and the like where `{x-authorize.permission}` stands."""
        for name, said in self._operation.items():
            if name.startswith("x-") and isinstance(said, Mapping):
                for member, value in said.items():
                    reason = reason.replace(f"{{{name}.{member}}}", str(value))
        return reason


def _is(wanted: Any, names: list[str]) -> bool:
    return bool(names) if wanted is True else wanted in names


def _says(said: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        given = said if isinstance(said, Mapping) else {}
        return all(_says(given.get(name), value) for name, value in wanted.items())
    if isinstance(wanted, list):
        return said in wanted
    return said is not None if wanted is True else said == wanted


def _with_headers(response: Json, headers: Json) -> Json:
    return {**response, "headers": {**headers, **response.get("headers", {})}}


def _table_faults(table: Json) -> Iterator[str]:
    meant: dict[str, str] = {}
    for rule in table.get("answers", ()):
        unknown = rule.keys() - _KEYS
        unknown |= {one for one in rule.get("when", {}) if one not in _WORDS and one[:2] != "x-"}
        if unknown:
            yield f"{TABLE}: {', '.join(sorted(unknown))} is unknown"
        for status, response in rule.get("responses", {}).items():
            if meant.setdefault(status, response.get("$ref")) != response.get("$ref"):
                yield f"{TABLE}: {status} is answered in two ways"
            if "$ref" not in response:
                yield f"{TABLE}: {status} is no $ref to a response that all share"
