"""Owns the promises about keys: who may do what, in which indexes, until when."""

import hashlib
import hmac
import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import jwt
import pytest

from contract_tests.search.process import MASTER, Service
from contract_tests.service_process import until


@pytest.fixture(scope="module", autouse=True)
def _indexes(service: Service) -> None:
    for uid in ("books", "books_new", "films"):
        service.done("PATCH", f"/indexes/{uid}/settings", {"filterableAttributes": ["owner"]})
        documents = [{"id": 1, "owner": "ada"}, {"id": 2, "owner": "bob"}]
        service.done("POST", f"/indexes/{uid}/documents", documents)


def made(service: Service, **members: Any) -> dict[str, Any]:
    body = {"actions": ["search"], "indexes": ["*"], "expiresAt": None} | members
    key: dict[str, Any] = service.ask("POST", "/keys", body, status=201)
    return key


def test_the_value_of_a_key_follows_from_its_uid(service: Service) -> None:
    uid = "6062abda-a5aa-4414-ac91-ecd7944c0f8d"
    key = made(service, uid=uid, name="mine")
    expected = hmac.new(MASTER.encode(), uid.encode(), hashlib.sha256).hexdigest()
    assert key["key"] == expected
    assert service.ask("GET", f"/keys/{expected}") == service.ask("GET", f"/keys/{uid}") == key
    assert service.refused("POST", "/keys", key | {"uid": "x"})[0] == 400
    again = {"uid": uid, "actions": ["*"], "indexes": ["*"], "expiresAt": None}
    assert service.refused("POST", "/keys", again) == (409, "api_key_already_exists")
    changed = service.ask("PATCH", f"/keys/{uid}", {"name": "other"})
    assert (changed["name"], changed["key"]) == ("other", expected)
    refused = service.refused("PATCH", f"/keys/{uid}", {"actions": ["*"]})
    assert refused == (400, "immutable_api_key_actions")
    service.ask("DELETE", f"/keys/{uid}", status=204)
    assert service.refused("GET", f"/keys/{uid}") == (404, "api_key_not_found")
    assert service.refused("POST", "/indexes/books/search", {}, key=expected)[0] == 403
    names = [each["name"] for each in service.ask("GET", "/keys")["results"]]
    assert {"Default Search API Key", "Default Admin API Key"} <= set(names)


def test_a_key_that_reads_all_reads_no_keys_and_changes_nothing(service: Service) -> None:
    key = made(service, actions=["*.get"])["key"]
    for path in ("/tasks", "/batches", "/indexes/books/documents", "/indexes/books/settings"):
        service.ask("GET", path, key=key)
    for method, path in (
        ("GET", "/keys"),
        ("DELETE", "/tasks?uids=0"),
        ("DELETE", "/indexes/books"),
        ("GET", "/indexes/books/search"),
    ):
        assert service.refused(method, path, key=key) == (403, "invalid_api_key")
    other = made(service, actions=["*.get", "keys.get"])["key"]
    assert service.ask("GET", "/keys", key=other)["results"]


def test_batches_are_those_of_the_indexes_of_a_key(service: Service) -> None:
    key = made(service, actions=["tasks.get"], indexes=["films"])["key"]
    found = service.ask("GET", "/batches", key=key)["results"]
    assert {uid for batch in found for uid in batch["stats"]["indexUids"]} == {"films"}
    every = service.ask("GET", "/batches")["results"]
    (other, *_) = [each for each in every if "books" in each["stats"]["indexUids"]]
    refused = service.refused("GET", f"/batches/{other['uid']}", key=key)
    assert refused == (404, "batch_not_found")


def test_a_key_does_what_it_is_for_and_nothing_else(service: Service) -> None:
    key = made(service, indexes=["books*"])["key"]
    assert service.ask("POST", "/indexes/books/search", {}, key=key)["estimatedTotalHits"] == 2
    assert service.ask("GET", "/indexes/books_new/search", key=key)["hits"]
    for method, path, body in (
        ("POST", "/indexes/films/search", {}),
        ("POST", "/indexes/none/search", {}),
        ("GET", "/indexes/books/documents", None),
        ("POST", "/indexes/books/documents", [{"id": 3}]),
        ("GET", "/keys", None),
        ("POST", "/multi-search", {"queries": [{"indexUid": "films"}]}),
        ("GET", "/tasks", None),
        ("GET", "/version", None),
    ):
        assert service.refused(method, path, body, key=key) == (403, "invalid_api_key")
    for wrong in ("x", "x" * 5_000, MASTER[:-1], "é"):
        with service.client(None) as client:
            header = [(b"Authorization", f"Bearer {wrong}".encode())]
            assert client.get("/indexes", headers=header).status_code == 403
    assert service.refused("GET", "/indexes", key=None) == (401, "missing_authorization_header")


def test_lists_show_only_what_the_key_is_for(service: Service) -> None:
    key = made(service, actions=["indexes.get", "tasks.get", "stats.get"], indexes=["films"])["key"]
    assert [one["uid"] for one in service.ask("GET", "/indexes", key=key)["results"]] == ["films"]
    assert list(service.ask("GET", "/stats", key=key)["indexes"]) == ["films"]
    tasks = service.ask("GET", "/tasks?limit=1000", key=key)
    assert {task["indexUid"] for task in tasks["results"]} == {"films"}
    other = service.ask("GET", "/tasks?indexUids=books&limit=1")["results"][0]["uid"]
    assert service.refused("GET", f"/tasks/{other}", key=key) == (404, "task_not_found")
    swaps = made(service, actions=["indexes.swap"], indexes=["films"])["key"]
    body = [{"indexes": ["films", "books"]}]
    assert service.refused("POST", "/swap-indexes", body, key=swaps) == (403, "invalid_api_key")


def test_a_key_ends_when_it_says(service: Service) -> None:
    soon = (datetime.now(UTC) + timedelta(seconds=1)).isoformat()
    key = made(service, expiresAt=soon)["key"]
    until(lambda: _status(service, key) == 403, "the key to end")
    past = {"actions": ["*"], "indexes": ["*"], "expiresAt": "2001-01-01T00:00:00Z"}
    assert service.refused("POST", "/keys", past) == (400, "invalid_api_key_expires_at")
    missing = {"actions": ["*"], "indexes": ["*"]}
    assert service.refused("POST", "/keys", missing) == (400, "missing_api_key_expires_at")
    wrong = {"actions": ["fly"], "indexes": ["*"], "expiresAt": None}
    assert service.refused("POST", "/keys", wrong) == (400, "invalid_api_key_actions")


def test_a_tenant_token_searches_what_its_rules_say(service: Service) -> None:
    key = made(service, actions=["search", "documents.get"], indexes=["books", "films"])

    def token(value: str = key["key"], **claims: Any) -> str:
        rules = {"books": {"filter": "owner = ada"}}
        return jwt.encode({"searchRules": rules, "apiKeyUid": key["uid"]} | claims, value)

    hits = service.ask("POST", "/indexes/books/search", {}, key=token())["hits"]
    assert hits == [{"id": 1, "owner": "ada"}]
    both = {"filter": "owner = bob"}
    assert service.ask("POST", "/indexes/books/search", both, key=token())["hits"] == []
    several = {"queries": [{"indexUid": "books"}]}
    answer = service.ask("POST", "/multi-search", several, key=token())
    assert answer["results"][0]["hits"] == hits
    wide = token(searchRules=["*"])
    assert len(service.ask("GET", "/indexes/films/search", key=wide)["hits"]) == 2
    ahead = token(exp=time.time() + 100)
    assert service.ask("GET", "/indexes/books/search", key=ahead)["hits"] == hits
    for path, sent in (
        ("/indexes/films/search", token()),
        ("/indexes/books_new/search", wide),
        ("/indexes/books/documents", token()),
        ("/indexes/books/search", token("another key of the length that is asked")),
        ("/indexes/books/search", token(exp=time.time() - 1)),
        ("/indexes/books/search", token(exp="soon")),
        ("/indexes/books/search", token(searchRules="*")),
        ("/indexes/books/search", token(apiKeyUid=None)),
        ("/indexes/books/search", token(apiKeyUid=[1])),
        ("/indexes/books/search", jwt.encode({"apiKeyUid": key["uid"]}, "", "none")),
        ("/indexes/books/search", "a.b.c"),
    ):
        assert service.refused("GET", path, key=sent) == (403, "invalid_api_key"), (path, sent)
    service.ask("DELETE", f"/keys/{key['uid']}", status=204)
    assert _status(service, token()) == 403


def test_two_master_keys_are_valid_for_an_overlap(service: Service) -> None:
    key = made(service)
    new = "a new master key that replaces it"
    service.keys.write_text(json.dumps([new, MASTER]))
    assert service.ask("GET", "/version", key=new)
    assert service.ask("GET", "/version")
    assert _status(service, key["key"]) == 200
    renewed = service.ask("GET", f"/keys/{key['uid']}")["key"]
    assert renewed != key["key"]
    assert _status(service, renewed) == 200
    service.keys.write_text(json.dumps([new]))
    assert _status(service, key["key"]) == 403
    assert _status(service, MASTER) == 403
    assert _status(service, renewed) == 200
    service.keys.write_text("{")
    assert _status(service, renewed) == 200
    service.keys.write_text(json.dumps([MASTER]))


def _status(service: Service, key: str) -> int:
    with service.client(key) as client:
        return client.get("/indexes/books/search").status_code
