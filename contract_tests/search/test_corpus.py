"""Owns the promise that no request of the corpus does what it must not, to the service alone.

At night the same requests come through the gateway of a whole installation (attacks/test_attacks).
"""

import socket
from collections.abc import Iterator

import pytest

from contract_tests.attacks.http_requests import Requests
from contract_tests.attacks.statements import attacks, fill
from contract_tests.attacks.surroundings import INNARDS, ROOT
from contract_tests.search.process import MASTER, Service, running

INDEXING_BYTES = 256 * 2**20
# What takes seconds of a CPU, although it is bounded, has its turn at night.
GROUPS = [
    pytest.param(kind, name, marks=[pytest.mark.nightly] * (name == "bounded"), id=f"{kind} {name}")
    for kind, name in sorted({(each.kind, each.name or "") for each in attacks("meilisearch")})
]


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    options = ("--indexing-bytes", str(INDEXING_BYTES), "--body-bytes", str(10 * 2**20))
    with running(tmp_path_factory.mktemp("attacked"), *options) as started:
        documents = [{"id": n, "a": f"word{n} ab"} for n in range(20)]
        started.done("PATCH", "/indexes/own/settings", {"filterableAttributes": ["id", "a"]})
        started.done("POST", "/indexes/own/documents", documents)
        started.done("POST", "/indexes/kept/documents", [{"id": 1, "word": "kept"}])
        yield started


def _requests(service: Service) -> Requests:
    def connect() -> socket.socket:
        made = socket.socket(socket.AF_UNIX)
        made.connect(str(service.socket))
        return made

    return Requests(connect, MASTER)


@pytest.mark.parametrize(("kind", "name"), GROUPS)
def test_no_request_of_the_corpus_does_what_it_must_not(
    attacked: Service, kind: str, name: str
) -> None:
    requests, harm = _requests(attacked), []
    for each in attacks("meilisearch"):
        if (each.kind, each.name or "") != (kind, name):
            continue
        for step in each.steps:
            status, text = requests.answer(fill(step))
            said = f"{status} to {step[:150]!r}: {text[-200:]}"
            if each.outcome == "refused" and not 400 <= status < 502:
                harm.append(f"not refused: {said}")
            if status == 500 or INNARDS.search(text) or str(ROOT) in text:
                harm.append(f"innards: {said}")
    assert harm == []
    # Whoever comes after is answered, and what others keep is there.
    assert attacked.ask("GET", "/indexes/kept/documents")["results"] == [{"id": 1, "word": "kept"}]
    assert attacked.ask("POST", "/indexes/kept/search", {"q": "kept"})["hits"]
    added = attacked.ask("POST", "/indexes/kept/documents", [{"id": 1, "word": "kept"}], status=202)
    assert attacked.finished(added)["status"] == "succeeded"
