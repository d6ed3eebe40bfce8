"""What a command works with: the profile in force, its document, and a client if needed."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clients import profiles
from clients.document import Document, Field, Operation
from clients.errors import ClientError, ConfigurationError
from clients.profiles import Profile
from clients.schemas import DocumentError
from clients.source import Source, cache_folder

if TYPE_CHECKING:
    from clients.client import Client

PROBE_TIMEOUT_S = 5.0

# The options every client command has, to be used as annotations.
ProfileOption = Annotated[
    str | None,
    typer.Option("--profile", help="Use this profile.", metavar="NAME", rich_help_panel="Common"),
]
OrgOption = Annotated[
    str | None,
    typer.Option(
        "--org", help="Org, by id or slug. [default: the profile's]", rich_help_panel="Common"
    ),
]


@dataclass
class Desk:
    """One command's surroundings."""

    profile: Profile
    client: "Client"
    org_id: str | None

    @property
    def document(self) -> Document:
        return self.client.document

    def operation(self, method: str, suffix: str) -> Operation:
        """Answer the operation whose path ends so, as the server's document has it."""
        found = self.document.ending(method, suffix)
        if found is None:
            raise ConfigurationError(f"{self.profile.base_url} offers no {method} …{suffix}")
        return found

    def instance(self, name_or_id: str) -> dict[str, Any]:
        """Answer the instance with this id or name."""
        get = self.operation("GET", "/instances/{instance_id}")
        field = next(one for one in get.at("path") if one.name == "instance_id")
        org = self.org()
        instance_id = self.client.identify(get, field, name_or_id, org)
        found: dict[str, Any] = self.client.send(get, {**org, "instance_id": instance_id}).body
        return found

    def org(self) -> dict[str, Any]:
        return {"org_id": self.org_id} if self.org_id else {}

    def identify(
        self, operation: Operation, field: Field, value: str, known: dict[str, Any]
    ) -> str:
        return self.client.identify(operation, field, value, known)


def open_desk(
    profile_name: str | None,
    *,
    org: str | None = None,
    notice: Callable[[float, str], None] | None = None,
) -> Desk:
    """Answer a desk with a client on the profile's server; nothing is sent yet."""
    from clients.client import Client  # noqa: PLC0415  HTTP takes a tenth of a second to import
    from clients.retries import Retries  # noqa: PLC0415  see above

    profile = profiles.resolve(profile_name)
    client = Client.from_profile(
        profile, document=document_of(profile), retries=Retries(notice=notice or _tell_retry)
    )
    desk = Desk(profile, client, profile.org_id)
    if org:
        get_org = desk.operation("GET", "/orgs/{org_id}")
        desk.org_id = client.identify(get_org, get_org.at("path")[0], org, {})
    return desk


def _tell_retry(delay_s: float, reason: str) -> None:
    if delay_s >= 1:
        typer.echo(f"{reason}; trying again in {delay_s:.0f} s", err=True)


def document_of(profile: Profile) -> Document:
    """Answer the profile's document as it was last seen."""
    return Source(profile.base_url, cache_folder()).at_hand()


def document_at_hand(args: list[str]) -> Document | None:
    """Answer the document without asking the server; None where there is none or no profile."""
    try:
        return document_of(profiles.resolve(_named_profile(args)))
    except (ClientError, DocumentError):
        return None


def current_document(args: list[str], *, even_if_fresh: bool = False) -> Document:
    """Answer the server's document, from the cache while that is fresh."""
    profile = profiles.resolve(_named_profile(args))

    def fetch(etag: str | None) -> Any:
        from clients.client import Client  # noqa: PLC0415  see open_desk
        from clients.retries import Retries  # noqa: PLC0415  see open_desk

        with Client.from_profile(
            profile, timeout_s=PROBE_TIMEOUT_S, retries=Retries(attempts_max=1)
        ) as client:
            return client.fetch_document(etag)

    return Source(profile.base_url, cache_folder()).current(fetch, even_if_fresh=even_if_fresh)


def _named_profile(args: list[str]) -> str | None:
    """Answer what --profile says, before the command it belongs to is even known."""
    for position, arg in enumerate(args):
        if arg == "--profile" and position + 1 < len(args):
            return args[position + 1]
        if arg.startswith("--profile="):
            return arg.partition("=")[2]
    return os.environ.get("MENAGERIE_PROFILE")
