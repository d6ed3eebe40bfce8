"""Telling ids from names, and finding the id behind a name."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from clients import schemas
from clients.document import Field, Operation
from clients.errors import AmbiguousName, UnknownName

if TYPE_CHECKING:
    from clients.client import Client

NAMES: Final = ("name", "slug", "email")
DELETED: Final = "deleted"
CHECKED_CHARACTERS_MAX: Final = 64
REPETITIONS_MAX: Final = 3
REPEATED_GROUP: Final = re.compile(r"\)[*+{]")
REPETITION: Final = re.compile(r"[*+?{]")
PARAMETER: Final = re.compile(r"\{(\w+)\}")
ID: Final = re.compile(r"^[a-z]{2,8}_[0-9A-HJKMNP-TV-Z]{26}$")


def is_id(field: Field, value: str) -> bool:
    """Whether the value is an id, or the word the document shows in an id's place (`current`)."""
    return bool(ID.match(value)) or value == field.schema.get("example")


def may_match(pattern: str, value: str) -> bool:
    """False where the value does not match; what could take long to find out, the server decides.

    A pattern is the server's, and a hostile one could keep the command busy for ever.
    """
    repetitions = len(REPETITION.findall(pattern))
    if len(value) > CHECKED_CHARACTERS_MAX or repetitions > REPETITIONS_MAX:
        return True
    if REPEATED_GROUP.search(pattern):
        return True
    try:
        return re.search(pattern, value) is not None
    except re.error:
        return True


def lister(operation: Operation, field: Field) -> Operation | None:
    """Answer the operation that lists what the parameter names one of.

    What is put into a list is in another one, so far: a member of the organization, into a team.
    """
    is_listed = field.place == "path" and operation.method != "PUT"
    path = operation.path if is_listed else _path_of_one(operation, field)
    head, _, _ = path.partition(f"/{{{field.name}}}")
    found = operation.document.at("GET", head)
    return found if found is not None and found.is_list else None


def _path_of_one(operation: Operation, field: Field) -> str:
    """Answer the path that names one with the least, which the operation's own path names too."""
    known = {one.name for one in operation.at("path")}
    heads = (
        other.path.partition(f"/{{{field.name}}}")
        for other in operation.document.operations.values()
    )
    found = [head for head, here, _ in heads if here and set(PARAMETER.findall(head)) <= known]
    return min(found, key=lambda head: (head.count("{"), len(head)), default="")


def names_of(operation: Operation, field: Field) -> list[str]:
    """Answer which of NAMES can stand for the id that the parameter wants."""
    listing = lister(operation, field)
    if listing is None or not field.name.endswith("_id"):
        return []
    members = {one for answer in listing.answer_schemas for one in _members(listing, answer)}
    return [one for one in NAMES if one in members]


def _members(listing: Operation, answer: Mapping[str, Any]) -> set[str]:
    """Answer the members of what a list lists."""
    raw = listing.document.raw
    node = (
        answer if answer.get("type") == "array" else answer.get("properties", {}).get("items", {})
    )
    item = schemas.merge(raw, schemas.merge(raw, node).get("items", {}))
    return set(item.get("properties", {}))


def statuses(operation: Operation, listing: Operation) -> tuple[dict[str, str], ...]:
    """Answer the queries by which a name is looked for: what is deleted keeps its name.

    What exists is meant first, except by whoever wants something back: its name may be another's.
    """
    status = next((one for one in listing.at("query") if one.name == "status"), None)
    if status is None or DELETED not in schemas.choices(status.schema):
        return ({},)
    both: tuple[dict[str, str], ...] = ({}, {"status": DELETED})
    return both[::-1] if operation.id.endswith(".undelete") else both


def identify(
    client: "Client", operation: Operation, field: Field, value: str, arguments: Mapping[str, Any]
) -> str:
    """Answer the id for what may be an id or a name; raise where no or several have the name."""
    if is_id(field, value) or not field.name.endswith("_id"):
        return value
    listing = lister(operation, field)
    if listing is None:
        return value
    kind = field.name.removesuffix("_id").replace("_", " ")
    for status in statuses(operation, listing):
        items = _items(client, listing, value, arguments, status)
        if items and not any(set(NAMES) & set(item) for item in items):
            return value  # what has no name can only be meant by a word the server knows
        found = [item for item in items if value in (item.get(name) for name in NAMES)]
        if found:
            break
    else:
        raise UnknownName(f"there is no {kind} called {value!r}")
    if len(found) > 1:
        ids = ", ".join(id_of(item, field.name) for item in found)
        raise AmbiguousName(f"{len(found)} {kind}s are called {value!r}; use an ID instead: {ids}")
    return id_of(found[0], field.name)


def id_of(item: Mapping[str, Any], name: str = "user_id") -> str:
    """Answer the id of what is listed: `id`, or as parameters call it where it is a person's."""
    return str(item["id"] if "id" in item else item[name])


def _items(
    client: "Client",
    listing: Operation,
    value: str,
    arguments: Mapping[str, Any],
    status: Mapping[str, str],
) -> list[dict[str, Any]]:
    path = {one.name: arguments[one.name] for one in listing.at("path") if one.name in arguments}
    named = next((one for one in listing.at("query") if one.name == "name"), None)
    if named is not None and not may_match(str(named.schema.get("pattern", "")), value):
        return []  # nothing can be called what no name may be
    query = {**status, **({"name": value} if named is not None else {})}
    if listing.is_page:
        return list(client.paginate(listing.id, limit=None, **{**path, **query}))
    body = client.send(listing, {**path, **query}).body
    items: list[dict[str, Any]] = body["items"] if isinstance(body, dict) else body
    return items
