"""Owns the promise that a search engine is ordered, filled and searched by Meilisearch's client."""

import socket
from collections.abc import Callable
from typing import Any

import httpx
import meilisearch
import pytest
from meilisearch.errors import MeilisearchApiError

from clients.client import transport_for_localhost
from contract_tests.end_to_end.engine_clients import LOOPBACK, WAIT_S, Place
from contract_tests.end_to_end.installation import Installation, order, wait_for
from contract_tests.end_to_end.test_engines import Instance, place_of
from contract_tests.search.javascript import SEEN, walked
from contract_tests.service_process import until

PAGE = "https://shop.example.com"
BOOKS = [
    {"id": 1, "title": "Pride and Prejudice", "owner": "ada"},
    {"id": 2, "title": "Emma", "owner": "bob"},
]
Connect = Callable[[Place, str], meilisearch.Client]


@pytest.fixture
def connect(installation: Installation, monkeypatch: pytest.MonkeyPatch) -> Connect:
    """The client as it is: where the host is, and whom to trust, it takes from its surroundings."""
    resolve = socket.getaddrinfo

    def here(host: Any, *more: Any, **named: Any) -> Any:
        return resolve(LOOPBACK if str(host).endswith(".localhost") else host, *more, **named)

    monkeypatch.setattr(socket, "getaddrinfo", here)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", installation.endpoints["ca_file"])
    return lambda place, key: meilisearch.Client(f"https://{place.host}:{place.port}", key)


@pytest.fixture(scope="module")
def instance(installation: Installation) -> Instance:
    return Instance(installation, order(installation, engine="meilisearch", size="f0")["id"])


def filled(connect: Connect, place: Place) -> meilisearch.Client:
    client = connect(place, place.login[1])
    settings = client.index("books").update_settings({"filterableAttributes": ["owner"]})
    client.wait_for_task(settings.task_uid, timeout_in_ms=60_000)
    added = client.index("books").add_documents(BOOKS)
    assert client.wait_for_task(added.task_uid, timeout_in_ms=60_000).status == "succeeded"
    return client


def titles(client: meilisearch.Client, words: str) -> list[str]:
    return [hit["title"] for hit in client.index("books").search(words)["hits"]]


def test_it_is_filled_searched_rotated_and_restored_by_its_own_client(
    installation: Installation, instance: Instance, connect: Connect
) -> None:
    place = place_of(installation, instance.id)
    client = filled(connect, place)
    assert titles(client, "prejudise") == ["Pride and Prejudice"]
    key = client.create_key(
        {"name": "page", "actions": ["search"], "indexes": ["books"], "expiresAt": None}
    )
    tenant = client.generate_tenant_token(
        key.uid, {"books": {"filter": "owner = bob"}}, api_key=key.key
    )
    assert titles(connect(place, key.key), "em") == ["Emma"]
    assert titles(connect(place, tenant), "") == ["Emma"]
    with pytest.raises(MeilisearchApiError) as refused:
        connect(place, key.key).index("books").add_documents([{"id": 3}])
    assert refused.value.code == "invalid_api_key"

    renewed = Place(instance.rotate(), place.ca_file)
    new = connect(renewed, renewed.login[1])
    renewed_key = new.get_key(key.uid).key
    assert renewed_key != key.key
    for each in (place.login[1], renewed.login[1], key.key, renewed_key, tenant):
        assert titles(connect(place, each), "emma") == ["Emma"]

    made = instance.post("backups", {"label": "before"})
    path = f"{instance.path}/backups/{made['id']}"
    with installation.api() as api:
        until(lambda: api.get(path).json()["status"] == "completed", "the backup is made")
        answer = api.post(f"{path}/actions/restore", json={"name": "books-again"})
    assert answer.status_code == 201, answer.text
    restored = answer.json()["target_instance_id"]
    wait_for(installation, restored, "running")
    other = place_of(installation, restored)
    again = connect(other, other.login[1])
    assert titles(again, "prejudise") == ["Pride and Prejudice"]
    assert again.get_key(key.uid).key not in {key.key, renewed_key}
    for former in (place.login[1], renewed.login[1], key.key, renewed_key, tenant):
        with pytest.raises(MeilisearchApiError) as unknown:
            titles(connect(other, former), "emma")
        assert unknown.value.code == "invalid_api_key"


@pytest.mark.nightly
def test_the_javascript_client_works_through_the_gateway(
    installation: Installation, instance: Instance
) -> None:
    place = place_of(installation, instance.id)
    address = f"https://{place.host}:{place.port}"
    assert walked(address, place.login[1], place.ca_file) == SEEN


def test_a_page_of_another_origin_searches_with_a_key_of_its_own(
    installation: Installation, instance: Instance, connect: Connect
) -> None:
    place = place_of(installation, instance.id)
    client = filled(connect, place)
    key = client.create_key(
        {"name": "page", "actions": ["search"], "indexes": ["books"], "expiresAt": None}
    ).key
    url = f"https://{place.host}:{place.port}/indexes/books/search"
    wanted = "authorization,content-type,x-meilisearch-client"
    asked = {
        "Origin": PAGE,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": wanted,
    }
    transport = transport_for_localhost(place.ca_file)
    with httpx.Client(transport=transport, timeout=WAIT_S, headers={"Origin": PAGE}) as page:
        preflight = page.options(url, headers=asked)
        assert preflight.status_code == 200
        assert preflight.headers["access-control-allow-origin"] == "*"
        assert "POST" in preflight.headers["access-control-allow-methods"]
        assert preflight.headers["access-control-allow-headers"] == wanted
        sent = {"Authorization": f"Bearer {key}", "X-Meilisearch-Client": "Meilisearch JS (1.0)"}
        found = page.post(url, json={"q": "prejudise"}, headers=sent)
        assert [hit["id"] for hit in found.json()["hits"]] == [1]
        assert found.headers["access-control-allow-origin"] == "*"
        # A page reads why it is refused as well.
        refused = page.post(url, json={"q": "x"}, headers={"Authorization": "Bearer wrong"})
        assert (refused.status_code, refused.json()["code"]) == (403, "invalid_api_key")
        assert refused.headers["access-control-allow-origin"] == "*"
