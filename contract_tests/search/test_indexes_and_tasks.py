"""Owns the promises about indexes, settings and tasks."""

from contract_tests.search.process import Service


def test_indexes_are_made_changed_swapped_and_deleted(service: Service) -> None:
    service.done("POST", "/indexes", {"uid": "one", "primaryKey": "key"})
    made = service.ask("GET", "/indexes/one")
    assert list(made) == ["uid", "createdAt", "updatedAt", "primaryKey"]
    # The official clients refuse an instant without fractions of a second.
    assert "." in made["createdAt"]
    assert made["createdAt"].endswith("Z")
    again = service.finished(service.ask("POST", "/indexes", {"uid": "one"}, status=202))
    assert again["error"]["code"] == "index_already_exists"
    service.done("PATCH", "/indexes/one", {"primaryKey": "isbn"})
    service.done("POST", "/indexes/one/documents", [{"isbn": 1}])
    failed = service.finished(
        service.ask("PATCH", "/indexes/one", {"primaryKey": "id"}, status=202)
    )
    assert failed["error"]["code"] == "index_primary_key_already_exists"
    service.done("POST", "/indexes/two/documents", [{"id": 2, "word": "other"}])
    service.done("POST", "/swap-indexes", [{"indexes": ["one", "two"]}])
    assert service.ask("GET", "/indexes/one/documents")["results"] == [{"id": 2, "word": "other"}]
    assert service.ask("POST", "/indexes/one/search", {"q": "other"})["hits"]
    assert service.refused("POST", "/swap-indexes", [{"indexes": ["one", "one"]}]) == (
        400,
        "invalid_swap_duplicate_index_found",
    )
    missing = service.ask("POST", "/swap-indexes", [{"indexes": ["one", "none"]}], status=202)
    assert service.finished(missing)["error"]["code"] == "index_not_found"
    service.done("PATCH", "/indexes/two", {"uid": "three"})
    assert service.refused("GET", "/indexes/two") == (404, "index_not_found")
    service.done("DELETE", "/indexes/three")
    assert service.refused("GET", "/indexes/three") == (404, "index_not_found")
    assert "one" in [each["uid"] for each in service.ask("GET", "/indexes")["results"]]
    figures = service.ask("GET", "/indexes/one/stats")
    assert (figures["numberOfDocuments"], figures["isIndexing"]) == (1, False)
    assert figures["fieldDistribution"] == {"id": 1, "word": 1}
    assert service.ask("GET", "/stats")["indexes"]["one"] == figures


def test_settings_are_changed_one_by_one_and_together(service: Service) -> None:
    path = "/indexes/set/settings"
    assert service.refused("GET", path) == (404, "index_not_found")
    service.done("PUT", f"{path}/ranking-rules", ["words", "year:desc"])
    service.done("PATCH", f"{path}/typo-tolerance", {"minWordSizeForTypos": {"oneTypo": 4}})
    service.done("PATCH", path, {"synonyms": {"hp": ["harry potter"]}})
    settings = service.ask("GET", path)
    assert settings["rankingRules"] == ["words", "year:desc"]
    assert settings["typoTolerance"]["minWordSizeForTypos"] == {"oneTypo": 4, "twoTypos": 9}
    assert service.ask("GET", f"{path}/synonyms") == {"hp": ["harry potter"]}
    service.done("DELETE", f"{path}/ranking-rules")
    assert service.ask("GET", f"{path}/ranking-rules")[0] == "words"
    service.done("DELETE", path)
    assert service.ask("GET", path)["synonyms"] == {}
    for changes, code in (
        ({"rankingRules": ["best"]}, "invalid_settings_ranking_rules"),
        ({"stopWords": "the"}, "invalid_settings_stop_words"),
        ({"typoTolerance": {"minWordSizeForTypos": {"oneTypo": 12}}},
         "invalid_settings_typo_tolerance"),
        ({"chat": {"description": "x"}}, "feature_not_enabled"),
        ({"unknown": 1}, "bad_request"),
    ):  # fmt: skip
        assert service.refused("PATCH", path, changes) == (400, code)
    assert service.refused("GET", f"{path}/chat") == (400, "feature_not_enabled")


def test_tasks_are_listed_filtered_canceled_and_deleted(service: Service) -> None:
    first = service.ask("POST", "/indexes/t1/documents", [{"id": 1}], status=202)
    assert list(first) == ["taskUid", "indexUid", "status", "type", "enqueuedAt"]
    assert first["status"] == "enqueued"
    service.finished(first)
    failed = service.finished(service.ask("DELETE", "/indexes/none", status=202))
    assert list(failed["error"]) == ["message", "code", "type", "link"]
    page = service.ask("GET", "/tasks?limit=1")
    assert (page["from"], page["next"]) == (failed["uid"], failed["uid"] - 1)
    later = service.ask("GET", f"/tasks?limit=1&from={page['next']}")
    assert later["results"][0]["uid"] == failed["uid"] - 1
    found = service.ask("GET", "/tasks?statuses=failed&types=indexDeletion&indexUids=none,other")
    assert [each["uid"] for each in found["results"]] == [failed["uid"]]
    assert service.ask("GET", "/tasks?afterEnqueuedAt=2100-01-01")["total"] == 0
    assert service.ask("GET", "/tasks?reverse=true&uids=*")["results"][0]["uid"] == 0
    for query, code in (
        ("statuses=done", "invalid_task_statuses"),
        ("types=x", "invalid_task_types"),
        ("uids=a", "invalid_task_uids"),
        ("beforeEnqueuedAt=noon", "invalid_task_before_enqueued_at"),
        ("limit=-1", "invalid_task_limit"),
        ("unknown=1", "bad_request"),
    ):
        assert service.refused("GET", f"/tasks?{query}") == (400, code)
    assert service.refused("POST", "/tasks/cancel") == (400, "missing_task_filters")
    canceled = service.finished(service.ask("POST", "/tasks/cancel?statuses=enqueued,failed"))
    assert canceled["details"]["canceledTasks"] == 0
    assert canceled["details"]["originalFilter"].startswith("?statuses=")
    deleted = service.finished(service.ask("DELETE", f"/tasks?uids={failed['uid']}"))
    assert deleted["details"]["deletedTasks"] == 1
    assert service.refused("GET", f"/tasks/{failed['uid']}") == (404, "task_not_found")


def test_what_is_left_out_says_so(service: Service) -> None:
    for feature in ("chats", "network", "dynamic-search-rules", "render-template", "dumps"):
        assert service.refused("GET", f"/{feature}") == (400, "feature_not_enabled")
    for copies in ("dumps", "snapshots"):
        told = service.ask("POST", f"/{copies}", status=400)
        assert (told["code"], told["type"]) == ("feature_not_enabled", "invalid_request")
        assert told["message"].endswith("make a backup of the instance instead")
    assert service.refused("GET", "/no-such-path") == (404, "not_found")
    assert service.refused("DELETE", "/health") == (405, "method_not_allowed")
