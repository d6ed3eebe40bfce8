"""Callers who were let in before: their records are loaded again only where these have changed."""

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import event
from structlog.testing import capture_logs

from contract_tests.boundary.small_api import SmallApi
from control.boundary import admission_cache as known
from control.boundary.admission_cache import AdmissionCache, ResolvedCredential
from storage.access.organizations import Organization


@pytest.fixture
def loads(api: SmallApi) -> Iterator[list[str]]:
    """The queries of whole keys and sessions."""
    found: list[str] = []

    def note(_db: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if statement.startswith(("SELECT api_keys.id,", "SELECT sessions.id,")):
            found.append(statement)

    event.listen(api.database.engine, "before_cursor_execute", note)
    yield found
    event.remove(api.database.engine, "before_cursor_execute", note)


def noted(api: SmallApi, token: str) -> None:
    """The caller is known, and that the token was used is written, for some time to come."""
    for _ in range(2):
        api.get("/v1/me", token)
        api.boundary.last_used.flush()


@pytest.mark.parametrize("kind", ["key", "session"])
def test_what_reads_loads_a_caller_once(api: SmallApi, loads: list[str], kind: str) -> None:
    ann = api.person()
    org = api.org((ann, "owner"))
    token = api.key(org, ann) if kind == "key" else ann.session
    api.get("/v1/me", token)
    loads.clear()
    answers = [api.get(f"/v1/orgs/{org}", token).json() for _ in range(4)]
    assert answers == [{"id": org}] * 4
    assert len(loads) <= 2  # a session once more in the organization, and when it was last used


def test_each_of_several_callers_is_loaded_once(api: SmallApi, loads: list[str]) -> None:
    ann, ben = api.person(), api.person()
    org = api.org((ann, "owner"), (ben, "owner"))
    tokens = [api.key(org, ann), api.key(org, ben)]
    for token in tokens:
        api.get(f"/v1/orgs/{org}", token)
    api.boundary.last_used.flush()
    for token in tokens:
        api.get(f"/v1/orgs/{org}", token)
    loads.clear()
    assert {api.get(f"/v1/orgs/{org}", token).status_code for token in tokens} == {200}
    assert loads == []


def test_what_writes_loads_its_caller_in_its_transaction(api: SmallApi, loads: list[str]) -> None:
    ann = api.person()
    org = api.org((ann, "owner"))
    token = api.key(org, ann)
    noted(api, token)
    for number in range(3):
        loads.clear()
        made = api.post(f"/v1/orgs/{org}/projects", token, json={"name": "n", "slug": f"s{number}"})
        assert made.status_code == 201
        assert len(loads) == 1
    loads.clear()
    assert api.post(f"/v1/orgs/{org}/ask-cell", token, json={}).status_code == 200
    assert loads == []


def test_a_changed_role_holds_for_the_next_request(api: SmallApi) -> None:
    ann, ben = api.person(), api.person()
    org = api.org((ann, "owner"), (ben, "owner"))
    token = api.key(org, ben)
    path, body = f"/v1/orgs/{org}/projects", {"name": "n", "slug": "s"}
    for role, status in (("owner", 201), ("viewer", 403), (None, 401), ("owner", 409)):
        api.set_role(org, ben, role)
        assert api.post(path, token, json=body).status_code == status
        answer = api.get(f"/v1/orgs/{org}", token)
        assert answer.status_code == (401 if role is None else 200), role


def test_rows_that_differ_are_not_known() -> None:
    cache, resolved = AdmissionCache(), ResolvedCredential(caller=None, org=None)  # type: ignore[arg-type]
    cache.note(("token",), ["row", {}], resolved)
    assert cache.get(("token",), ["row", {}]) is resolved
    assert cache.get(("token",), ["another", {}]) is None
    assert cache.get(("another",), ["row", {}]) is None


def test_so_many_are_known_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "MAX", 2)
    cache, resolved = AdmissionCache(), ResolvedCredential(caller=None, org=None)  # type: ignore[arg-type]
    for token in ("a", "b", "a", "c"):
        cache.note((token,), [], resolved)
    assert [cache.get((token,), []) is not None for token in "abc"] == [True, False, True]
    for token in ("c", "a"):
        cache.note((token,), ["other"], resolved)
    cache.note(("a",), ["another"], resolved)
    left = [cache.get((token,), ["other"]) is not None for token in "abc"]
    assert left == [False, False, True]


@pytest.mark.parametrize("kind", ["key", "session"])
def test_a_handler_that_reads_may_not_change_its_caller(
    api: SmallApi, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    ann = api.person()
    org = api.org((ann, "owner"))

    def changed(self: ResolvedCredential) -> Iterator[str]:
        assert isinstance(self.org, Organization)
        self.org.name = "another"
        return real(self)

    real = ResolvedCredential.changed
    monkeypatch.setattr(ResolvedCredential, "changed", changed)
    token = api.key(org, ann) if kind == "key" else ann.session
    with capture_logs() as logs:
        assert api.get(f"/v1/orgs/{org}", token).status_code == 500
    (told,) = [entry["exception"] for entry in logs if "exception" in entry]
    assert told.endswith("HandlerFault: samples.org reads, and changed a Organization\n")
