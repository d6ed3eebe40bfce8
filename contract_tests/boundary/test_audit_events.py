"""What is written beside the change: audit and events, in one transaction or not at all."""

from dataclasses import fields
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sqlalchemy import select

from contract_tests.boundary.small_api import MakeSmallApi, SmallApi
from control.boundary import Call
from control.workflows.instances import erasure
from storage.events.audit import AuditEntry
from storage.events.events import Event
from storage.instances.instances import Instance
from storage.work import Work


def entries(api: SmallApi) -> list[AuditEntry]:
    """In the order they were made, which a table does not keep by itself."""
    with api.database.read() as db:
        return list(db.scalars(select(AuditEntry).order_by(AuditEntry.id)))


def events(api: SmallApi) -> list[Event]:
    with api.database.read() as db:
        return list(db.scalars(select(Event)))


def test_an_audit_names_actor_target_request_and_address(api: SmallApi) -> None:
    ann = api.person()
    org = api.org((ann, "owner"))
    key = api.key(org, ann)
    path = f"/v1/orgs/{org}/projects"
    api.post(path, ann.session, json={"name": "A", "slug": "a"})
    headers = {"X-Request-Id": "my-request-7"}
    made = api.post(path, key, json={"name": "B", "slug": "b"}, headers=headers).json()
    first, second = entries(api)
    assert (first.actor_kind, first.actor_id) == ("user", ann.id)
    assert second.actor_kind == "api_key"
    assert (second.actor_id or "").startswith("key_")
    assert second.org_id == org
    assert second.action == "samples.create_project"
    assert second.target == made["id"]
    assert second.request_id == "my-request-7"
    assert second.ip == "203.0.113.7"
    assert second.detail == {"name": "B"}


def test_someone_unknown_is_audited_as_anonymous_outside_of_any_org(api: SmallApi) -> None:
    api.post("/v1/sessions", json={"email": "a@example.org", "password": "right"})
    (entry,) = entries(api)
    assert (entry.actor_kind, entry.actor_id, entry.org_id) == ("anonymous", None, None)


def test_what_a_service_account_does_is_its_own(api: SmallApi) -> None:
    ann = api.person()
    org = api.org((ann, "owner"))
    key = api.key(org, ann)
    api.change_key(key, service_account_id="sa_1")
    api.post(f"/v1/orgs/{org}/projects", key, json={"name": "A", "slug": "a"})
    assert [entry.actor_kind for entry in entries(api)] == ["service_account"]


def test_a_read_can_be_audited(api: SmallApi) -> None:
    ann = api.person()
    org = api.org((ann, "owner"))
    assert api.get(f"/v1/orgs/{org}/logs", ann.session).status_code == 200
    assert [entry.action for entry in entries(api)] == ["instance.logs"]


def test_a_dry_run_is_not_audited(api: SmallApi) -> None:
    ann = api.person()
    path = f"/v1/orgs/{api.org((ann, 'owner'))}/projects?dry_run=true"
    assert api.post(path, ann.session, json={"name": "A", "slug": "a"}).status_code == 200
    assert entries(api) == []


@pytest.mark.parametrize(
    ("kind", "audited", "status"),
    [
        ("instance.paused.v1", True, 204),
        ("instance.paused.v1", False, 500),
        ("instance.ready.v1", True, 500),
    ],
)
def test_strictly_a_forgotten_audit_or_an_undeclared_event_is_an_error(
    api: SmallApi, kind: str, audited: bool, status: int
) -> None:
    ann = api.person()
    org = api.org((ann, "owner"))
    body = {"kind": kind, "audited": audited}
    assert api.post(f"/v1/orgs/{org}/emit", ann.session, json=body).status_code == status
    assert len(events(api)) == len(entries(api)) == (status == 204)


def test_in_production_a_forgotten_audit_is_written_all_the_same(make_api: MakeSmallApi) -> None:
    api = make_api(strict=False)
    ann = api.person()
    org = api.org((ann, "owner"))
    body = {"kind": "instance.paused.v1", "audited": False}
    assert api.post(f"/v1/orgs/{org}/emit", ann.session, json=body).status_code == 204
    assert [(entry.action, entry.target) for entry in entries(api)] == [("samples.emit", None)]
    (event,) = events(api)
    assert (event.org_id, event.type, event.data) == (org, "instance.paused.v1", {"said": "so"})


def test_a_forgotten_audit_names_the_record_of_the_path(make_api: MakeSmallApi) -> None:
    api = make_api(strict=False)
    ann = api.person()
    path = f"/v1/orgs/{api.org((ann, 'owner'))}/projects"
    made = api.post(path, ann.session, json={"name": "A", "slug": "a"}).json()["id"]
    assert api.post(f"{path}/{made}/forget", ann.session).status_code == 204
    assert [entry.target for entry in entries(api)] == [made, made]


@pytest.mark.parametrize(("strict", "status"), [(True, 500), (False, 204)])
def test_a_secret_of_the_body_is_written_to_no_log_and_no_event(
    make_api: MakeSmallApi, strict: bool, status: int
) -> None:
    """At any depth, where a handler passes on the whole body; strictly that is an error."""
    api = make_api(strict=strict)
    ann = api.person()
    org = api.org((ann, "owner"))
    body = {"accounts": [{"name": "app", "password": "canary"}]}
    assert api.post(f"/v1/orgs/{org}/confide", ann.session, json=body).status_code == status
    kept = [] if strict else [{"accounts": [{"name": "app"}]}]
    assert [entry.detail for entry in entries(api)] == kept
    assert [event.data for event in events(api)] == kept


def test_a_workflow_knows_the_request_that_started_it(api: SmallApi) -> None:
    asked = SimpleNamespace(request_id="my-request-7")
    given: dict[str, Any] = dict.fromkeys(each.name for each in fields(Call) if each.init)
    with api.database.write() as db:
        call = Call(**given | {"db": db, "exchange": asked})
        call.start(erasure.delete, lane="cell_1", why="a test")
        instance = cast("Instance", SimpleNamespace(id="inst_1", org_id="org_1"))
        call.start(erasure.delete, instance)
        first, second = db.scalars(select(Work).order_by(Work.seq))
        assert first.lane == "cell_1"
        assert first.args == {"request_id": "my-request-7", "why": "a test"}
        ids = {"org_id": "org_1", "instance_id": "inst_1"}
        assert (second.lane, second.args) == ("inst_1", {"request_id": "my-request-7", **ids})
        with pytest.raises(ValueError, match=r"is started in no lane: name one, or an instance$"):
            call.start(erasure.delete)
