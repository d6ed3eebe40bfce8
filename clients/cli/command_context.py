"""What a command works with: the profile in force, its document, and a client if needed."""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import typer

from clients import profiles
from clients.cli import given
from clients.document import Document, Field, Operation
from clients.errors import ClientError, ConfigurationError
from clients.hosts import is_local
from clients.profiles import Profile
from clients.retries import RATE_LIMITED
from clients.schemas import DocumentError
from clients.source import Source, cache_folder

if TYPE_CHECKING:
    from clients.client import Client

PROBE_TIMEOUT_S = 5.0


@dataclass
class CommandContext:
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
            raise ConfigurationError(
                f"{self.profile.base_url} does not have the operation {method} …{suffix}"
            )
        return found

    def instance(self, name_or_id: str) -> dict[str, Any]:
        """Answer the instance with this id or name."""
        get = self.operation("GET", "/instances/{instance_id}")
        org = self.org()
        instance_id = self.identify_at("/instances/{instance_id}", name_or_id, **org)
        found: dict[str, Any] = self.client.send(get, {**org, "instance_id": instance_id}).body
        return found

    def org(self) -> dict[str, Any]:
        """Answer the org as an argument, by its id; nothing where there is none."""
        if not self.org_id:
            return {}
        self.org_id = self.client.org_id = self.identify_at("/orgs/{org_id}", self.org_id)
        return {"org_id": self.org_id}

    def identify_at(self, suffix: str, value: str, **known: Any) -> str:
        """Answer the id for the last parameter of the path that ends so."""
        operation = self.operation("GET", suffix)
        return self.client.identify(operation, operation.at("path")[-1], value, known)

    def identify(
        self, operation: Operation, field: Field, value: str, known: dict[str, Any]
    ) -> str:
        return self.client.identify(operation, field, value, known)


def open_context(
    profile_name: str | None,
    *,
    org: str | None = None,
    notice: Callable[[float, str], None] | None = None,
) -> CommandContext:
    """Answer a context with a client on the profile's server; nothing is sent yet."""
    from clients.client import Client  # noqa: PLC0415  HTTP takes a tenth of a second to import
    from clients.retries import Retries  # noqa: PLC0415  see above

    profile = profiles.resolve(profile_name or given.PROFILE.get())
    client = Client.from_profile(
        profile, document=document_of(profile), retries=Retries(notice=notice or _tell_retry)
    )
    context = CommandContext(profile, client, profile.org_id)
    _warn_of_plain_http(profile)
    if org:
        context.org_id = context.identify_at("/orgs/{org_id}", org)
    return context


def _warn_of_plain_http(profile: Profile) -> None:
    parts = urlsplit(profile.base_url)
    exposed = parts.scheme == "http" and not is_local(parts.hostname or "")
    if exposed and (profile.api_key or profile.session_token):
        typer.echo(f"warning: tokens are sent unencrypted to {profile.base_url}", err=True)


def _tell_retry(delay_s: float, reason: str) -> None:
    if delay_s >= 1 or reason == RATE_LIMITED:
        typer.echo(f"{reason}; trying again in {math.ceil(delay_s)} s", err=True)


def document_of(profile: Profile) -> Document:
    """Answer the profile's document as it was last seen."""
    return Source(profile.base_url, cache_folder()).at_hand()


def document_at_hand(args: list[str]) -> Document | None:
    """Answer the document without asking the server; None where there is none or no profile."""
    try:
        return document_of(profiles.resolve(_named_profile(args)))
    except ClientError:
        # The command itself will say what is wrong with the profile; its help needs none.
        return _shipped_document()
    except DocumentError:
        return None


def _shipped_document() -> Document | None:
    try:
        return document_of(Profile())
    except DocumentError:
        return None


def current_document(args: list[str], *, even_if_fresh: bool = False) -> Document:
    """Answer the server's document, from the cache while that is fresh."""
    profile = profiles.resolve(_named_profile(args))

    def fetch(etag: str | None) -> Any:
        from clients.client import Client  # noqa: PLC0415  see open_context
        from clients.retries import Retries  # noqa: PLC0415  see open_context

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
    return given.PROFILE.get() or os.environ.get("MENAGERIE_PROFILE")
