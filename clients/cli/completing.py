"""What a shell completes with that only the server knows: names, sizes, engines, regions.

It is asked once, with little patience: a shell that waits is worse than one that knows nothing.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import typer

from clients import profiles
from clients.cli import given
from clients.cli.command_context import document_of
from clients.document import Document, Field, Operation
from clients.errors import ClientError
from clients.names import NAMES, id_of, lister, statuses
from clients.schemas import DocumentError

if TYPE_CHECKING:
    from clients.client import Client

PATIENCE_S: Final = 2.0
NAMES_MAX: Final = 200
# A name that every shell takes for itself, unquoted.
WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")

# A word, and what it is.
Word = tuple[str, str]
Complete = Callable[[typer.Context, str], list[Word]]


def completer(operation: Operation, field: Field) -> Complete | None:
    """Answer what completes the field: names of what there is, or what the catalogue has."""
    listing = lister(operation, field) if _is_named(operation, field) else None
    listing = listing or _catalogue(operation.document, field.name)
    if listing is None:
        return None
    return _from(lambda _: listing, statuses(operation, listing)[0])


def _is_named(operation: Operation, field: Field) -> bool:
    return field.place == "path" or field in operation.query_arguments


def instance_names(ctx: typer.Context, incomplete: str) -> list[Word]:
    """Answer the names of the instances there are."""

    def listing(document: Document) -> Operation | None:
        return document.at("GET", "/v1/orgs/{org_id}/instances")

    return _from(listing)(ctx, incomplete)


def _catalogue(document: Document, name: str) -> Operation | None:
    """Answer what lists the values of a member called so: `size` is one of `sizes.list`."""
    plural = name.rpartition("_")[2] + "s"
    found = document.operations.get(f"{plural}.list")
    return found if found is not None and not found.at("path") else None


def _from(
    listing: Callable[[Document], Operation | None], query: Mapping[str, str] = MappingProxyType({})
) -> Complete:
    def complete(ctx: typer.Context, incomplete: str) -> list[Word]:
        with suppress(ClientError, DocumentError, KeyError):
            words = _known(listing, ctx.params, query)
            return sorted(one for one in words if one[0].startswith(incomplete))
        return []

    return complete


def _known(
    listing: Callable[[Document], Operation | None],
    typed: Mapping[str, Any],
    query: Mapping[str, str],
) -> Iterable[Word]:
    from clients.client import Client  # noqa: PLC0415  HTTP is slow to import
    from clients.retries import Retries  # noqa: PLC0415  see above

    profile = profiles.resolve(typed.get("profile") or given.PROFILE.get())
    document = document_of(profile)
    operation = listing(document)
    if operation is None:
        return []
    with Client.from_profile(
        profile, document=document, timeout_s=PATIENCE_S, retries=Retries(attempts_max=1)
    ) as client:
        path = {**_path(client, operation, typed), **query}
        if operation.is_page:
            items = list(client.paginate(operation.id, limit=NAMES_MAX, **path))
        else:
            items = client.send(operation, path).body
            items = items["items"] if isinstance(items, Mapping) else items
    return {_word(one) for one in items if one.get("availability", "available") == "available"}


def _path(client: "Client", operation: Operation, typed: Mapping[str, Any]) -> dict[str, Any]:
    """Answer the ids of what the list is of, from what stands on the line so far."""
    found: dict[str, Any] = {}
    for field in operation.at("path"):
        value = typed.get(f"path_{field.name}") or typed.get(field.name.removesuffix("_id"))
        value = value or getattr(client, field.name, None)
        found[field.argument] = client.identify(operation, field, str(value), found)
    return found


def _word(item: Mapping[str, Any]) -> Word:
    """Answer the name, or the id where a shell could take the name for more than a word."""
    # The catalogue's things go by their ids; what people made goes by the name they gave it.
    made = NAMES if "created_at" in item else ()
    name = str(next((item[each] for each in made if item.get(each)), id_of(item)))
    return (name, "") if WORD.fullmatch(name) else (id_of(item), name)
