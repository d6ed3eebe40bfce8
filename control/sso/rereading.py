"""What an identity provider publishes of itself, read again: for a connection that there is.

It may publish another key, and other addresses. It may not become another provider by that: whom
the former one named would be other people.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Any

from control.services import Services
from control.sso.oidc import discovery
from control.sso.oidc.discovery import Provider
from control.sso.providers import Providers, ProviderUnavailable
from control.sso.saml.known import SamlSettings
from storage.sso.connections import SsoConnection


@dataclass(frozen=True)
class ProviderSource:
    """Where it is read, taken from its transaction; `settings` are as they were then."""

    org_id: str
    connection_id: str
    kind: str
    settings: Mapping[str, Any]
    entity_id: str | None

    @property
    def url(self) -> str | None:
        """Of the metadata, or the issuer. None: what is known was given by hand."""
        found: str | None = self.settings.get("issuer" if self.kind == "oidc" else "metadata_url")
        return found


@dataclass(frozen=True)
class Published:
    """As a connection keeps it; `keys` are of OpenID Connect alone."""

    provider: dict[str, Any]
    keys: list[dict[str, Any]] | None = None


def source_of(connection: SsoConnection) -> ProviderSource:
    return ProviderSource(
        org_id=connection.org_id,
        connection_id=connection.id,
        kind=connection.kind,
        settings=dict(connection.settings),
        entity_id=(connection.provider or {}).get("entity_id"),
    )


def read(services: Services, source: ProviderSource, now: datetime) -> Published | None:
    """None where it is published nowhere. Raises ProviderUnavailable and ProvidersBusy."""
    if source.url is None:
        return None
    if source.kind == "oidc":
        found, keys = discovery.discover(services.providers, source.url, whose=source.org_id)
        return Published(found.as_json(), keys)
    told = _metadata(services, source.url, source.org_id)
    if source.entity_id is not None and told.entity_id != source.entity_id:
        raise ProviderUnavailable(
            f"{source.url} has the metadata of another identity provider, {told.entity_id}: record"
            " it with the connection if people are to sign in there"
        )
    if told.has_ended(now):
        raise ProviderUnavailable(f"the metadata at {source.url} has ended (validUntil)")
    return Published(told.as_json())


def fetch_metadata(providers: Providers, url: str, *, whose: str) -> bytes:
    """What is at the URL of metadata. Raises ProviderUnavailable and ProvidersBusy."""
    answer = providers.fetch(url, whose=whose)
    if answer.status != HTTPStatus.OK:
        raise ProviderUnavailable(f"{url} answers with the status {answer.status}")
    return answer.body


def changes(connection: SsoConnection, published: Published) -> list[str]:
    """The names of what is another than it was, for the audit log."""
    before = connection.provider or {}
    if connection.kind == "saml":
        before = SamlSettings.of_json(before).as_json() if before else {}
        # Metadata is often valid for a few days more each time that it is read.
        compared = published.provider.keys() - {"valid_until"}
    else:
        before = Provider.of_json(before).as_json() if before else {}
        compared = set(published.provider)
    found = {name for name in compared if published.provider[name] != before.get(name)}
    if published.keys is not None and published.keys != connection.keys:
        found.add("keys")
    return sorted(found)


def _metadata(services: Services, url: str, whose: str) -> SamlSettings:
    # Who uses no SAML does not load what reads XML.
    from control.sso.saml import metadata  # noqa: PLC0415

    content = fetch_metadata(services.providers, url, whose=whose)
    try:
        return metadata.parse(content, allows_http=services.settings.sso_insecure_localhost)
    except metadata.MetadataRefused as refused:
        raise ProviderUnavailable(f"the metadata at {url} {refused}") from refused
