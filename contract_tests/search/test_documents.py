"""Owns the promises about documents: what comes in by which form is what is found again."""

from typing import Any

import pytest

from contract_tests.search.process import Service


def test_documents_are_added_replaced_updated_and_deleted(service: Service) -> None:
    path = "/indexes/stories/documents"
    task = service.done("POST", path, [{"id": 1, "a": 1, "b": 2}, {"id": "two", "a": 3}])
    assert task["details"] == {"receivedDocuments": 2, "indexedDocuments": 2}
    assert task["type"] == "documentAdditionOrUpdate"
    service.done("PUT", path, {"id": 1, "a": 10})
    assert service.ask("GET", f"{path}/1") == {"id": 1, "a": 10, "b": 2}
    service.done("POST", path, {"id": 1, "a": 11})
    assert service.ask("GET", f"{path}/1") == {"id": 1, "a": 11}
    assert service.ask("GET", path)["results"] == [{"id": 1, "a": 11}, {"id": "two", "a": 3}]
    assert service.ask("GET", f"{path}?fields=a&limit=1&offset=1")["results"] == [{"a": 3}]
    found = service.ask("POST", f"{path}/fetch", {"ids": ["two"], "fields": ["id"]})
    assert found == {"results": [{"id": "two"}], "offset": 0, "limit": 20, "total": 1}
    assert service.done("DELETE", f"{path}/1")["details"]["deletedDocuments"] == 1
    assert service.done("DELETE", f"{path}/1")["details"]["deletedDocuments"] == 0
    assert service.refused("GET", f"{path}/1") == (404, "document_not_found")
    assert service.done("POST", f"{path}/delete-batch", ["two", 7])["details"] == {
        "providedIds": 2,
        "originalFilter": None,
        "deletedDocuments": 1,
    }
    assert service.ask("GET", path)["total"] == 0


def test_documents_are_deleted_by_a_filter_and_all_at_once(service: Service) -> None:
    path = "/indexes/years/documents"
    service.done("PATCH", "/indexes/years/settings", {"filterableAttributes": ["year"]})
    service.done("POST", path, [{"id": n, "year": 1800 + n} for n in range(10)])
    task = service.done("POST", f"{path}/delete", {"filter": "year < 1804"})
    assert (task["details"]["deletedDocuments"], service.ask("GET", path)["total"]) == (4, 6)
    assert service.ask("GET", f"{path}?filter=year=1805")["results"] == [{"id": 5, "year": 1805}]
    failed = service.finished(
        service.ask("POST", f"{path}/delete", {"filter": "other = 1"}, status=202)
    )
    assert failed["error"]["code"] == "invalid_document_filter"
    assert failed["details"]["deletedDocuments"] == 0
    assert service.done("DELETE", path)["details"]["deletedDocuments"] == 6


@pytest.mark.parametrize(
    ("media_type", "text"),
    [
        ("application/json", '[{"id":"a","n":1.5,"ok":true},{"id":"b","n":null,"ok":false}]'),
        ("application/x-ndjson", '{"id":"a","n":1.5,"ok":true}\n\n{"id":"b","n":null,"ok":false}'),
        ("text/csv", 'id,n:number,ok:boolean\na,1.5,true\n"b",,false\n'),
        ("text/csv; charset=utf-8", "\ufeffid;n:number;ok:boolean\na;1.5;true\nb;;false\n"),
    ],
)
def test_each_form_of_documents_says_the_same(service: Service, media_type: str, text: str) -> None:
    index = f"forms{abs(hash(media_type + text))}"
    query = "?csvDelimiter=%3B" if ";" in media_type else ""
    service.done(
        "POST",
        f"/indexes/{index}/documents{query}",
        content=text.encode(),
        headers={"Content-Type": media_type},
    )
    assert service.ask("GET", f"/indexes/{index}/documents")["results"] == [
        {"id": "a", "n": 1.5, "ok": True},
        {"id": "b", "n": None, "ok": False},
    ]


@pytest.mark.parametrize(
    ("media_type", "content", "expected"),
    [
        (None, b"[]", (415, "missing_content_type")),
        ("text/plain", b"[]", (415, "invalid_content_type")),
        ("application/json", b"", (400, "missing_payload")),
        ("application/json", b'[{"id": NaN}]', (400, "malformed_payload")),
        ("application/json", b'[{"id": 1}', (400, "malformed_payload")),
        ("application/json", b"[1]", (400, "malformed_payload")),
        ("application/json", b'[{"id":"\xff"}]', (400, "malformed_payload")),
        ("application/json", b"[" * 5_000 + b"]" * 5_000, (400, "malformed_payload")),
        ("application/json", b'{"a":' * 900 + b"1" + b"}" * 900, (400, "malformed_payload")),
        ("application/x-ndjson", b'{"id":1}\n[]', (400, "malformed_payload")),
        ("text/csv", b"id,a\n1", (400, "malformed_payload")),
        ("text/csv", b'id,a\n1,"', (400, "malformed_payload")),
        ("text/csv", b"id,a:number\n1,x", (400, "malformed_payload")),
    ],
)
def test_what_is_no_document_is_refused_at_once(
    service: Service, media_type: str | None, content: bytes, expected: tuple[int, str]
) -> None:
    headers = {} if media_type is None else {"Content-Type": media_type}
    got = service.refused("POST", "/indexes/refused/documents", content=content, headers=headers)
    assert got == expected
    assert service.refused("GET", "/indexes/refused") == (404, "index_not_found")


def test_a_task_whose_documents_are_wrong_changes_nothing(service: Service) -> None:
    path = "/indexes/wrong/documents"
    given: tuple[tuple[list[dict[str, Any]], str], ...] = (
        ([{"name": "x"}], "index_primary_key_no_candidate_found"),
        ([{"id": 1, "other_id": 2}], "index_primary_key_multiple_candidates_found"),
    )
    for documents, code in given:
        task = service.finished(service.ask("POST", path, documents, status=202))
        assert (task["status"], task["error"]["code"]) == ("failed", code)
    service.done("POST", path, [{"id": 1}])
    given = (
        ([{"id": 2}, {"name": "x"}], "missing_document_id"),
        ([{"id": 2}, {"id": "a b"}], "invalid_document_id"),
        ([{"id": 2}, {"id": 1.5}], "invalid_document_id"),
    )
    for documents, code in given:
        task = service.finished(service.ask("POST", path, documents, status=202))
        assert (task["status"], task["error"]["code"]) == ("failed", code)
        assert task["details"]["indexedDocuments"] == 0
    assert service.ask("GET", path)["results"] == [{"id": 1}]
    other = f"{path}?primaryKey=isbn"
    task = service.finished(service.ask("POST", other, [{"isbn": 1}], status=202))
    assert task["error"]["code"] == "index_primary_key_already_exists"
