"""Owns validation against JSON Schema 2020-12: schemas compiled once, violations collected."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import jsonschema_rs
import orjson

from specserver.excerpts import Excerpt
from specserver.messages import message

Violation = dict[str, Any]

# A body of a megabyte can break a rule a hundred thousand times; no reader wants more than this.
MAX_VIOLATIONS = 100
# Long names in their pointers must not make an answer many times the size of the request.
POINTERS_LENGTH_MAX = 65_536
# Beside a pattern: what it allows, as it follows "must be".
ALLOWED = "x-allowed"

_UNEXPECTED_KEYWORDS = ("additionalProperties", "unevaluatedProperties")


class Schemas:
    """Compiles schemas by their place in one document, so references work, recursion included."""

    _URI = "urn:specserver:document"

    def __init__(self, root: dict[str, Any]) -> None:
        self._registry = jsonschema_rs.Registry(
            [(self._URI, root)], draft=jsonschema_rs.Draft202012
        )
        self._known: dict[bytes, Schema] = {}
        self._allowed = dict(_words_of_patterns(root))

    def at(self, *place: str | int) -> "Schema":
        pointer = "".join(["/" + escape(str(part), percent=True) for part in place])
        return Schema({"$ref": f"{self._URI}#{pointer}"}, self._registry, self._allowed)

    def of(self, schema: dict[str, Any] | bool) -> "Schema":
        """A schema given as it is; its local references are into the document.

        Equal schemas are one: a document repeats itself, and what is used often stays in the
        processor's cache.
        """
        key = orjson.dumps(schema, option=orjson.OPT_SORT_KEYS)
        if key not in self._known:
            self._known[key] = Schema(_rebased(schema, self._URI), self._registry, self._allowed)
        return self._known[key]


class Schema:
    """One compiled schema. `allowed` says in words what each pattern lets in."""

    __slots__ = ("_allowed", "_validator", "is_valid")

    def __init__(
        self,
        schema: dict[str, Any] | bool,
        registry: jsonschema_rs.Registry | None = None,
        allowed: Mapping[str, str] | None = None,
    ) -> None:
        self._allowed = dict(_words_of_patterns(schema)) if allowed is None else allowed
        self._validator = jsonschema_rs.Draft202012Validator(
            schema, registry=registry, validate_formats=True, offline=True
        )
        self.is_valid = self._validator.is_valid

    def violations(self, instance: Any) -> "Violations":
        """The violations, each with the JSON pointer of the member it is about.

        Of a large instance: the first one of the whole, and those of its beginning.
        """
        part = Excerpt(instance)
        if part.is_whole:
            return _told(self._violations(self._validator.iter_errors(instance)), whole=True)
        errors = [e for e in self._validator.iter_errors(part.value) if _holds(part, e)]
        return _told(self._violations([*self._first(instance), *errors]), whole=False)

    def _first(self, instance: Any) -> Iterator[jsonschema_rs.ValidationError]:
        # Unlike iter_errors, it stops at the first; sizes are looked at before items.
        try:
            self._validator.validate(instance)
        except jsonschema_rs.ValidationError as error:
            yield error

    def _violations(self, errors: Iterable[jsonschema_rs.ValidationError]) -> Iterator[Violation]:
        return _violations(errors, self._allowed)


class Violations(list[Violation]):
    """`may_be_more` where not all of the instance was looked at, or not all is told."""

    def __init__(self, found: Iterable[Violation], *, may_be_more: bool) -> None:
        super().__init__(found)
        self.may_be_more = may_be_more


def _holds(part: Excerpt, error: jsonschema_rs.ValidationError) -> bool:
    return part.holds(error.kind.name, error.instance_path)


def _told(violations: Iterator[Violation], *, whole: bool) -> Violations:
    found: list[Violation] = []
    length = 0
    for violation in islice(violations, MAX_VIOLATIONS):
        found.append(violation)
        length += len(violation["pointer"])
        if length > POINTERS_LENGTH_MAX:
            break
    ended = len(found) < MAX_VIOLATIONS and length <= POINTERS_LENGTH_MAX
    # The processor calls a required member that is there missing too, where it is unexpected.
    there = {v["pointer"] for v in found if v["keyword"] in _UNEXPECTED_KEYWORDS}
    told = [v for v in found if v["keyword"] != "required" or v["pointer"] not in there]
    once = {(v["pointer"], v["keyword"], v["message"]): v for v in told}
    return Violations(once.values(), may_be_more=not (whole and ended))


def _words_of_patterns(root: Any) -> Iterator[tuple[str, str]]:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            if ALLOWED in node and isinstance(node.get("pattern"), str):
                yield node["pattern"], str(node[ALLOWED])
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)


def _violations(
    errors: Iterable[jsonschema_rs.ValidationError], allowed: Mapping[str, str]
) -> Iterator[Violation]:
    for error in errors:
        keyword = error.kind.name
        pointer = "".join(["/" + escape(str(part)) for part in error.instance_path])
        if keyword == "required":
            # The place to mend is the missing member and not the object it is missing from.
            member = error.kind.as_dict()["property"]
            yield _violation(f"{pointer}/{escape(member)}", keyword, "is required")
        elif keyword in _UNEXPECTED_KEYWORDS:
            for member in error.kind.as_dict()["unexpected"]:
                yield _violation(f"{pointer}/{escape(member)}", keyword, "is not a known member")
        elif keyword == "propertyNames":
            # The place is the member; the processor names the object, and in a violation within
            # the name that is wrong.
            member = error.kind.as_dict()["error"].instance
            yield _violation(f"{pointer}/{escape(member)}", keyword, message(error, allowed))
        elif keyword in {"anyOf", "oneOf"}:
            yield from _of_branches(pointer, keyword, error, allowed)
        else:
            yield _violation(pointer, keyword, message(error, allowed))


def _of_branches(
    pointer: str,
    keyword: str,
    error: jsonschema_rs.ValidationError,
    allowed: Mapping[str, str],
) -> Iterator[Violation]:
    """The branch the sender meant, where it can be told, speaks for all of them."""
    context = error.kind.as_dict().get("context") or []
    branches = [list(_violations(branch, allowed)) for branch in context]
    meant = [b for b in branches if b and not any(_rules_out(v, pointer) for v in b)]
    if len(meant) == 1 and all(branches):
        yield from meant[0]
    else:
        yield _violation(pointer, keyword, message(error, allowed))


def _rules_out(violation: Violation, pointer: str) -> bool:
    """A wrong type here, or a wrong constant just below, means another branch was meant."""
    below: str = violation["pointer"][len(pointer) :]
    if violation["keyword"] == "type":
        return below == ""
    return violation["keyword"] in {"const", "enum"} and below.count("/") <= 1


def _violation(pointer: str, keyword: str, text: str) -> Violation:
    return {"pointer": pointer, "keyword": keyword, "message": text}


def escape(part: str, *, percent: bool = False) -> str:
    """A reference token of a JSON pointer (RFC 6901), also as a URI fragment."""
    part = part.replace("~", "~0").replace("/", "~1")
    if percent:
        part = "".join([c if c.isalnum() and c.isascii() else _percent(c) for c in part])
    return part


def _percent(character: str) -> str:
    if character in "-._~":
        return character
    return "".join([f"%{byte:02X}" for byte in character.encode()])


def _rebased(schema: Any, uri: str) -> Any:
    if isinstance(schema, list):
        return [_rebased(item, uri) for item in schema]
    if not isinstance(schema, dict):
        return schema
    rebased = {key: _rebased(value, uri) for key, value in schema.items()}
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        rebased["$ref"] = uri + reference
    return rebased
