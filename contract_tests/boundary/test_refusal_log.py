"""Refusals of sensitive acts are in the audit log, and however many there are, it is not filled."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sqlalchemy import select

from contract_tests.boundary.small_api import MakeSmallApi, Person, SmallApi
from control.boundary import refusal_log
from control.boundary.refusal_log import EVERY_S, USER_MAX, RefusalLog, name_account
from specserver import Exchange, Forbidden, Problem, Unauthenticated
from storage.errors import StorageUnavailable
from storage.events import audit
from storage.events.audit import AuditEntry

PROJECT = "proj_01JD7QK3V8Y2M4N6P8R0S2T4V6"


class Watched:
    """Refusals at a moment of one's own, and the entries that came of them."""

    def __init__(self, api: SmallApi) -> None:
        self.api, self.time = api, 0.0
        self.org = api.org((api.person(), "owner"))
        self.log = RefusalLog(api.services, clock=lambda: self.time)

    def refuse(
        self,
        operation: str = "projects.update",
        *,
        user: str | None = "usr_1",
        problem: Problem | None = None,
        account: str | None = None,
        target: str = PROJECT,
        **rule: Any,
    ) -> None:
        said = {"sensitive": False, "owner_only": False, "permission": "projects:write"}
        said |= {"in_org": True, "audit": operation.replace("s.", "."), **rule}
        caller = user and SimpleNamespace(
            user=SimpleNamespace(id=user),
            id=user,
            actor_kind="user",
            granted_by={},
        )
        exchange = SimpleNamespace(
            principal=caller,
            operation=SimpleNamespace(id=operation),
            state={},
            path={"org_id": self.org, "project_id": target},
            request_id="req_1",
        )
        if account:
            name_account(cast("Exchange", exchange), account, "password")
        refused = problem or Forbidden("no", code="permission_missing")
        self.log.note(
            cast("Exchange", exchange), cast("Any", SimpleNamespace(**said)), refused, "::1"
        )

    @property
    def entries(self) -> list[AuditEntry]:
        self.log.flush()
        with self.api.database.read() as db:
            return list(db.scalars(select(AuditEntry).order_by(AuditEntry.id)))


@pytest.fixture
def watched(make_api: MakeSmallApi) -> Iterator[Watched]:
    made = Watched(make_api(audit_refusals=True))
    yield made
    made.log.flush()


def test_a_refused_request_is_entered_with_who_what_and_why(make_api: MakeSmallApi) -> None:
    api = make_api(audit_refusals=True)
    ann: Person = api.person()
    org = api.org((api.person(), "owner"), (ann, "auditor"))
    path = f"/v1/orgs/{org}/projects"
    body = {"name": "A", "slug": "a"}
    refused = [api.post(path, ann.session, json=body) for _ in range(3)]
    statuses = {each.status_code for each in refused}
    api.boundary.refusals.flush()
    with api.database.read() as db:
        entries = list(db.scalars(select(AuditEntry)))
    assert statuses == {403}
    (entry,) = entries
    assert (entry.org_id, entry.action) == (org, "samples.create_project.refused")
    assert (entry.actor_kind, entry.actor_id, entry.ip) == ("user", ann.id, "203.0.113.7")
    assert entry.detail["code"] == refused[0].json()["code"]
    assert entry.request_id == refused[0].headers["x-request-id"]


def test_only_sensitive_acts_and_only_what_is_forbidden(watched: Watched) -> None:
    watched.refuse(permission="projects:read")
    watched.refuse(problem=Problem(404, "no"))
    watched.refuse(problem=Problem(409, "no"))
    watched.refuse(user=None, problem=Unauthenticated("no"))
    assert watched.entries == []
    watched.refuse(permission="projects:read", sensitive=True)
    watched.refuse("orgs.close", permission="none", owner_only=True)
    assert [each.action for each in watched.entries] == [
        "project.update.refused",
        "org.close.refused",
    ]


def test_a_crowd_is_counted_and_not_entered(watched: Watched) -> None:
    for _ in range(50):
        watched.refuse()
    watched.time += EVERY_S
    watched.refuse()
    first, second = watched.entries
    assert first.detail == {"code": "permission_missing"}
    assert second.detail == {"code": "permission_missing", "left_out": 49}


def test_whoever_tries_everything_is_entered_some_times_a_minute(watched: Watched) -> None:
    for number in range(3 * USER_MAX):
        watched.refuse(f"operations.n{number}")
    watched.refuse(user="usr_2")
    assert len(watched.entries) == USER_MAX + 1
    watched.time += EVERY_S
    watched.refuse(f"operations.n{2 * USER_MAX}")
    assert watched.entries[-1].detail["left_out"] == 1


def test_a_refused_sign_in_names_the_account_and_what_was_wrong(watched: Watched) -> None:
    refused = Unauthenticated("no", code="sign_in_refused")
    for _ in range(3):
        watched.refuse("sessions.create", user=None, problem=refused, account="usr_7", in_org=False)
    (entry,) = watched.entries
    assert (entry.action, entry.org_id, entry.target) == ("session.create.refused", None, "usr_7")
    assert (entry.actor_kind, entry.actor_id) == ("anonymous", None)
    assert entry.detail == {"code": "sign_in_refused", "wrong": "password"}


@pytest.mark.parametrize("target", ["", "x" * 3_000, "proj_\x00", "'; drop table audit", "proj_1"])
def test_a_path_that_names_no_record_leaves_no_text_behind(watched: Watched, target: str) -> None:
    watched.refuse(target=target)
    assert [each.target for each in watched.entries] == [None]


def test_what_is_remembered_is_bounded(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusal_log, "_REMEMBERED_MAX", 2)
    for user in ("usr_1", "usr_2", "usr_3", "usr_3", "usr_1"):
        watched.refuse(user=user)
    assert [each.actor_id for each in watched.entries] == ["usr_1", "usr_2", "usr_3", "usr_1"]


def test_a_database_that_is_away_changes_no_answer(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_of: Any, **_named: Any) -> None:
        raise StorageUnavailable("the database cannot be reached")

    with monkeypatch.context() as patched:
        patched.setattr(audit, "append", fails)
        watched.refuse()
        watched.log.flush()
    watched.time += EVERY_S
    watched.refuse()
    assert len(watched.entries) == 1
