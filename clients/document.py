"""The OpenAPI document as clients read it: its operations, what each takes and what it answers."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal

from clients import schemas

METHODS: Final = ("get", "put", "post", "delete", "patch")
SAFE_METHODS: Final = frozenset({"GET", "PUT", "DELETE"})
CREATED: Final = 201
ACCEPTED: Final = 202
IDEMPOTENCY_KEY: Final = "Idempotency-Key"
# Behind a server's URL it stays on that server: whatever begins otherwise may name another.
_PATH: Final = re.compile(r"/(?!/).*", re.DOTALL)

Place = Literal["path", "query", "header", "body"]


@dataclass(frozen=True)
class Field:
    """One value an operation takes, wherever it travels."""

    name: str
    place: Place
    schema: Mapping[str, Any]
    required: bool
    description: str

    @property
    def kind(self) -> schemas.Kind:
        return schemas.kind(self.schema)

    @property
    def argument(self) -> str:
        """The Python name: header names in snake case, the rest as they are."""
        return re.sub(r"\W", "_", self.name).lower() if self.place == "header" else self.name


@dataclass(frozen=True)
class Operation:
    """One operation of the document. Fields are worked out when first asked for."""

    id: str
    method: str
    path: str
    raw: Mapping[str, Any]
    shared_parameters: tuple[Mapping[str, Any], ...]
    document: "Document" = field(repr=False)

    @property
    def noun(self) -> str:
        return self.id.partition(".")[0]

    @property
    def verb(self) -> str:
        return self.id.partition(".")[2] or self.method.lower()

    @property
    def summary(self) -> str:
        return str(self.raw.get("summary", self.id))

    @property
    def description(self) -> str:
        return str(self.raw.get("description", "")).strip()

    @property
    def deprecated(self) -> bool:
        return bool(self.raw.get("deprecated"))

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """Everything the operation takes; parameters first, then the top level of its body."""
        named: dict[tuple[str, str], Field] = {}
        for node in (*self.shared_parameters, *self.raw.get("parameters", ())):
            parameter = schemas.follow(self.document.raw, node)
            schema = schemas.merge(self.document.raw, parameter.get("schema", {}))
            if "example" in parameter:
                schema["example"] = parameter["example"]
            place: Place = parameter["in"]
            named[place, parameter["name"]] = Field(
                name=parameter["name"],
                place=place,
                schema=schema,
                required=bool(parameter.get("required")),
                description=str(parameter.get("description") or schema.get("description", "")),
            )
        return (*named.values(), *self._body_fields())

    def _body_fields(self) -> Iterator[Field]:
        body = self.body_schema or {}
        required = set(body.get("required", ()))
        shown = self.body_example
        for name, node in body.get("properties", {}).items():
            schema = schemas.merge(self.document.raw, node)
            if schema.get("readOnly"):
                continue
            if isinstance(shown, Mapping) and name in shown:
                schema["example"] = shown[name]
            yield Field(name, "body", schema, name in required, str(schema.get("description", "")))

    def at(self, place: Place) -> list[Field]:
        return [one for one in self.fields if one.place == place]

    @cached_property
    def query_arguments(self) -> tuple[Field, ...]:
        """What a command takes as plain words from its query: what is required, and what it is for.

        An operation that needs a query asks about something, as `access.explain` does. The first
        record that the query may name beside is what it is asked for.
        """
        texts = [one for one in self.at("query") if one.kind in {"string", "enum"}]
        needed = [one for one in texts if one.required]
        records = [one for one in texts if not one.required and one.name.endswith("_id")]
        return (*needed, *records[:1]) if needed else ()

    def takes(self, name: str, place: Place = "query") -> bool:
        return any(one.name.lower() == name.lower() for one in self.at(place))

    @cached_property
    def body_type(self) -> str | None:
        """The media type of the request's body; None where it takes none."""
        content = schemas.follow(self.document.raw, self.raw.get("requestBody", {})).get("content")
        if not content:
            return None
        return "application/json" if "application/json" in content else str(next(iter(content)))

    @cached_property
    def _body(self) -> dict[str, Any]:
        request = schemas.follow(self.document.raw, self.raw.get("requestBody", {}))
        return dict(request.get("content", {}).get(self.body_type, {}))

    @cached_property
    def body_required(self) -> bool:
        return bool(
            schemas.follow(self.document.raw, self.raw.get("requestBody", {})).get("required")
        )

    @cached_property
    def body_schema(self) -> dict[str, Any] | None:
        if self.body_type is None:
            return None
        return schemas.merge(self.document.raw, self._body.get("schema", {}))

    @cached_property
    def body_example(self) -> Any:
        """The document's own first example of the body; None where it shows none."""
        if "example" in self._body:
            return self._body["example"]
        for node in self._body.get("examples", {}).values():
            return schemas.follow(self.document.raw, node).get("value")
        shown = (self.body_schema or {}).get("examples")
        return shown[0] if shown else None

    @cached_property
    def answer_schemas(self) -> list[dict[str, Any]]:
        """The merged schemas of its successful JSON answers, by status."""
        found = []
        for status, node in sorted(
            self.raw.get("responses", {}).items(), key=lambda one: str(one[0])
        ):
            content = schemas.follow(self.document.raw, node).get("content", {})
            if str(status).startswith("2") and "application/json" in content:
                schema = content["application/json"].get("schema", {})
                found.append(schemas.merge(self.document.raw, schema))
        return found

    def _answers_with(self, *names: str) -> bool:
        return any(set(names) <= set(one.get("properties", {})) for one in self.answer_schemas)

    @property
    def is_list(self) -> bool:
        listed = any(one.get("type") == "array" for one in self.answer_schemas)
        return listed or self._answers_with("items")

    @property
    def is_page(self) -> bool:
        return self._answers_with("items", "next_cursor") and self.takes("cursor")

    @property
    def is_stream(self) -> bool:
        """Whether its answer has no end: events are sent as they come."""
        answer = schemas.follow(self.document.raw, self.raw.get("responses", {}).get("200", {}))
        return "text/event-stream" in answer.get("content", {})

    @property
    def can_be_waited_for(self) -> bool:
        """Whether its work goes on after its answer, and something tells when it is done."""
        tells = self.takes("wait_for") and self._answers_with("id", "status", "desired_status")
        return tells or self.answers_with_status or self.ending is not None

    @property
    def answers_with_status(self) -> bool:
        """Whether it changes something whose `status` can be waited for."""
        changes = self.method != "GET"
        return changes and self._answers_with("id", "status") and self.watcher is not None

    @cached_property
    def watcher(self) -> "Operation | None":
        """The operation that waits for the status of what this one answers with."""
        for other in self.document.operations.values():
            reads = other.method == "GET" and other.takes("wait_for")
            if reads and (other.noun == self.noun or other.answered & self.answered):
                return other
        return None

    def decided_by(self, status: int) -> "Operation | None":
        """What reads the request that waits for a decision, where that is what was answered.

        An operation that creates something (201) answers so (202) instead where somebody must
        approve it first.
        """
        if status != ACCEPTED or str(CREATED) not in self.raw.get("responses", {}):
            return None
        waiting = self.answered_with(str(ACCEPTED))
        readers = (one for one in self.document.operations.values() if one.method == "GET")
        return next((one for one in readers if one.answered_with("200") & waiting), None)

    @cached_property
    def answered(self) -> set[str]:
        """The names of the schemas of its successful answers."""
        statuses = map(str, self.raw.get("responses", {}))
        good = [self.answered_with(each) for each in statuses if each.startswith("2")]
        return set().union(*good)

    def answered_with(self, status: str) -> set[str]:
        """The names of the schemas of its answer with this status."""
        node = self.raw.get("responses", {}).get(status, {})
        content = schemas.follow(self.document.raw, node).get("content", {})
        found = {str(one.get("schema", {}).get("$ref")) for one in content.values()}
        return found - {"None"}

    @cached_property
    def ending(self) -> "Ending | None":
        """What tells that it is done, where the document says so and it is not a `wait_for`."""
        said = self.raw.get("x-wait")
        reader = self.document.operations.get(said["operation"]) if said else None
        return Ending(reader, said["until"], said.get("unless", {})) if said and reader else None

    @property
    def needs_etag(self) -> bool:
        """Whether it is refused without the ETag of what it replaces."""
        return self.takes("If-Match", "header") and "428" in self.raw.get("responses", {})

    @property
    def is_replayable(self) -> bool:
        """Whether a repeat with the same Idempotency-Key is answered as the first was."""
        return self.method == "POST" or self.takes(IDEMPOTENCY_KEY, "header")

    @property
    def is_public(self) -> bool:
        required = self.raw.get("security", self.document.raw.get("security", []))
        return not required or {} in required

    @property
    def needs_session(self) -> bool:
        """Whether only a user session is accepted: an API key would be refused."""
        required = self.raw.get("security", self.document.raw.get("security", []))
        with_key = any("api_key" in alternative for alternative in required)
        named = self.policy.get("session") == "user"
        return named or (bool(required) and not with_key and not self.is_public)

    @property
    def loss(self) -> str | None:
        """What is lost for good by it, in sentences; None where it can be undone."""
        said = self.raw.get("x-confirm")
        if said is None and self.method == "DELETE":
            # A server that does not say so may still mean it.
            return "This cannot be undone."
        return None if said in {None, "none"} else str(said)

    @property
    def policy(self) -> dict[str, Any]:
        policy = self.raw.get("x-authorize")
        return dict(policy) if isinstance(policy, Mapping) else {}


@dataclass(frozen=True)
class Ending:
    """How an operation's work is seen to have ended: what `reader` shows, well or not."""

    reader: Operation
    until: Mapping[str, Any]
    unless: Mapping[str, Any]


class Document:
    """An OpenAPI 3.1 document, held as parsed JSON."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self.raw = raw

    @property
    def version(self) -> str:
        return str(self.raw.get("info", {}).get("version", ""))

    @cached_property
    def operations(self) -> dict[str, Operation]:
        found: dict[str, Operation] = {}
        for path, item in self.raw.get("paths", {}).items():
            shared = tuple(item.get("parameters", ()))
            for method in METHODS:
                if method in item and "operationId" in item[method]:
                    name = item[method]["operationId"]
                    if not isinstance(name, str) or not name:
                        raise schemas.DocumentError(f"{name!r} is not a usable operationId")
                    if not _PATH.fullmatch(path):
                        raise schemas.DocumentError(f"{path!r} is not a usable path")
                    found[name] = Operation(name, method.upper(), path, item[method], shared, self)
        return found

    @cached_property
    def nouns(self) -> dict[str, list[Operation]]:
        """Operations by the first part of their id, in the document's order."""
        groups: dict[str, list[Operation]] = {}
        for operation in self.operations.values():
            groups.setdefault(operation.noun, []).append(operation)
        return groups

    def describe_noun(self, noun: str) -> str:
        """Answer the description of the tag the noun's operations carry."""
        tags = {tag["name"]: tag.get("description", "") for tag in self.raw.get("tags", ())}
        for operation in self.nouns.get(noun, ()):
            for name in operation.raw.get("tags", ()):
                if tags.get(name):
                    return str(tags[name]).strip()
        return noun.replace("_", " ").capitalize()

    def at(self, method: str, path: str) -> Operation | None:
        """Answer the operation served at this method and path template."""
        for operation in self.operations.values():
            if operation.method == method and operation.path == path:
                return operation
        return None

    def ending(self, method: str, suffix: str) -> Operation | None:
        """Answer the first operation whose path template ends so."""
        for operation in self.operations.values():
            if operation.method == method and operation.path.endswith(suffix):
                return operation
        return None
