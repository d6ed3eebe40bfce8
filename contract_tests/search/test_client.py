"""Owns the promise that Meilisearch's own Python client works, unmodified."""

import meilisearch
import pytest
from meilisearch.errors import MeilisearchApiError


def test_the_python_client_does_its_work(client: meilisearch.Client) -> None:
    assert client.is_healthy()
    assert client.get_version()["pkgVersion"]
    task = client.create_index("films", {"primaryKey": "id"})
    assert client.wait_for_task(task.task_uid).status == "succeeded"
    films = client.index("films")
    settings = films.update_settings(
        {"filterableAttributes": ["genre"], "sortableAttributes": ["year"]}
    )
    client.wait_for_task(settings.task_uid)
    documents = [
        {"id": 1, "title": "Carol", "genre": ["Romance", "Drama"], "year": 2015},
        {"id": 2, "title": "Wonder Woman", "genre": ["Action"], "year": 2017},
        {"id": 3, "title": "Life of Pi", "genre": ["Adventure", "Drama"], "year": 2012},
    ]
    for added in films.add_documents_in_batches(documents, batch_size=2):
        assert client.wait_for_task(added.task_uid).status == "succeeded"
    found = films.search("wondre woman", {"attributesToHighlight": ["*"]})
    assert found["hits"][0]["_formatted"]["title"] == "<em>Wonder</em> <em>Woman</em>"
    drama = films.search("", {"filter": "genre = Drama", "sort": ["year:asc"], "facets": ["genre"]})
    assert [hit["id"] for hit in drama["hits"]] == [3, 1]
    assert drama["facetDistribution"]["genre"] == {"Adventure": 1, "Drama": 2, "Romance": 1}
    assert films.get_document(1).title == "Carol"
    assert films.get_documents({"limit": 2, "fields": ["id"]}).total == 3
    assert films.get_stats().number_of_documents == 3
    assert films.get_ranking_rules()[0] == "words"
    client.wait_for_task(films.update_synonyms({"superhero": ["wonder woman"]}).task_uid)
    assert films.search("superhero")["hits"][0]["id"] == 2
    client.wait_for_task(films.delete_documents(filter="genre = Action").task_uid)
    assert films.get_stats().number_of_documents == 2
    assert [index.uid for index in client.get_indexes()["results"]] == ["films"]
    assert client.get_tasks({"types": ["indexCreation"]}).results[0].index_uid == "films"
    client.wait_for_task(films.delete().task_uid)


def test_the_python_client_makes_keys_and_tenant_tokens(client: meilisearch.Client) -> None:
    task = client.index("docs").add_documents([{"id": 1, "user": 1}, {"id": 2, "user": 2}])
    client.wait_for_task(task.task_uid)
    settings = client.index("docs").update_filterable_attributes(["user"])
    client.wait_for_task(settings.task_uid)
    key = client.create_key(
        {"name": "s", "actions": ["search"], "indexes": ["docs"], "expiresAt": None}
    )
    assert client.get_key(key.uid).key == key.key
    address = client.config.url
    scoped = meilisearch.Client(address, key.key)
    assert len(scoped.index("docs").search("")["hits"]) == 2
    with pytest.raises(MeilisearchApiError) as refused:
        scoped.index("docs").add_documents([{"id": 3}])
    assert refused.value.code == "invalid_api_key"
    token = client.generate_tenant_token(key.uid, {"docs": {"filter": "user = 2"}}, api_key=key.key)
    tenant = meilisearch.Client(address, token)
    assert [hit["id"] for hit in tenant.index("docs").search("")["hits"]] == [2]
    with pytest.raises(MeilisearchApiError) as missing:
        client.get_index("none")
    assert missing.value.code == "index_not_found"
