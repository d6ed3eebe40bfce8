"""What a cell does, or what reads for long: before the transaction that records it."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import func, select

from contract_tests.boundary.small_api import MakeSmallApi, SmallApi
from control.boundary.replay import Replays
from storage.access import organizations
from storage.access.projects import Project
from storage.events.audit import AuditEntry
from storage.replays import Replay

KEYED = {"headers": {"Idempotency-Key": "k1"}, "json": {}}


def count(api: SmallApi, record: type[AuditEntry | Replay]) -> int:
    with api.database.read() as db:
        return int(db.scalar(select(func.count()).select_from(record)) or 0)


@pytest.fixture
def asked(api: SmallApi) -> tuple[str, str]:
    """The path of an organization, and the token of one who may ask its cell."""
    ann = api.person()
    return f"/v1/orgs/{api.org((ann, 'owner'))}", ann.session


def test_what_was_asked_of_a_cell_is_recorded_once(api: SmallApi, asked: tuple[str, str]) -> None:
    path, token = asked
    first = api.post(f"{path}/ask-cell", token, **KEYED)
    again = api.post(f"{path}/ask-cell", token, **KEYED)
    assert first.status_code == again.status_code == 200
    assert first.json() == again.json()
    assert again.headers["Idempotency-Replayed"] == "true"
    assert count(api, AuditEntry) == 1


def test_of_two_that_ask_at_once_the_second_is_told_what_the_first_was(
    api: SmallApi, asked: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has seen no answer before it asked, and finds one when it records."""
    path, token = asked
    first = api.post(f"{path}/ask-cell", token, **KEYED)
    monkeypatch.setattr(Replays, "seen", lambda *_given: None)
    second = api.post(f"{path}/ask-cell", token, **KEYED)
    assert (second.status_code, second.json()) == (200, first.json())
    assert second.headers["Idempotency-Replayed"] == "true"
    assert count(api, AuditEntry) == 1


@pytest.mark.parametrize("status", [400, 409])
def test_what_a_cell_refused_is_not_recorded_and_may_be_asked_again(
    api: SmallApi, asked: tuple[str, str], status: int
) -> None:
    path, token = asked
    body = {**KEYED, "json": {"then": f"answer_{status}"}}
    assert api.post(f"{path}/ask-cell", token, **body).status_code == status
    assert count(api, AuditEntry) == count(api, Replay) == 0
    assert api.post(f"{path}/ask-cell", token, **KEYED).status_code == 200


def test_of_a_closed_organization_a_cell_is_asked_nothing_and_what_it_has_can_be_read(
    api: SmallApi, asked: tuple[str, str]
) -> None:
    path, token = asked
    with api.database.write() as db:
        organizations.fetch(db, path.rpartition("/")[2]).close(api.database.now(db))
    refused = api.post(f"{path}/ask-cell", token, **KEYED)
    assert (refused.status_code, refused.json()["code"]) == (409, "org_closed")
    assert refused.json()["detail"] == "the organization is closed and read-only"
    assert api.get(f"{path}/look", token).status_code == 200
    assert count(api, AuditEntry) == 1


def test_what_is_read_outside_of_any_organization_is_recorded(api: SmallApi) -> None:
    assert api.get("/v1/look", api.person().session).status_code == 200
    with api.database.read() as db:
        (entry,) = db.scalars(select(AuditEntry))
    assert (entry.action, entry.org_id, entry.target) == ("samples.look", None, "inst_1")


def test_an_answer_is_for_whoever_may_still_do_it_though_its_record_is_gone(
    make_api: MakeSmallApi,
) -> None:
    api = make_api(strict=False)
    ann = api.person()
    path, token = f"/v1/orgs/{api.org((ann, 'owner'))}", ann.session
    made = api.post(f"{path}/projects", token, json={"name": "n", "slug": "s"}).json()["id"]
    key: dict[str, Any] = {"headers": {"Idempotency-Key": "k1"}}
    forget = f"{path}/projects/{made}/forget"
    first = api.post(forget, token, **key)
    with api.database.write() as db:
        db.delete(db.get_one(Project, made))
    again = api.post(forget, token, **key)
    assert (first.status_code, again.status_code) == (204, 204)
    assert again.headers["Idempotency-Replayed"] == "true"


def test_an_answer_of_a_cell_is_kept_for_24_hours(make_api: MakeSmallApi) -> None:
    api = make_api()
    ann = api.person()
    path = f"/v1/orgs/{api.org((ann, 'owner'))}/ask-cell"
    token = api.session(ann.id, ttl=timedelta(days=10))
    assert api.post(path, token, **KEYED).status_code == 200
    for offset_s, replayed in ((86_340, True), (86_460, False)):
        answer = make_api(clock_offset_s=offset_s).post(path, token, **KEYED)
        assert answer.status_code == 200
        assert ("Idempotency-Replayed" in answer.headers) == replayed
