"""What handlers are told when they do what they may not, and what is passed on of what they may."""

from dataclasses import fields
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from contract_tests.boundary.small_api import SmallApi
from control.boundary import Call
from control.boundary.call import HandlerFault
from specserver import Reply
from storage.access.organizations import Organization
from storage.access.projects import Project
from storage.access.users import User
from storage.events import audit, events
from storage.instances.instances import Instance

KIND = "instance.requested.v1"


def call_of(**given: Any) -> Call:
    """A call of an operation that may tell all but two secrets."""
    rule = SimpleNamespace(audit="thing.make", events={KIND}, secret={"token", "password"})
    exchange = SimpleNamespace(
        operation=SimpleNamespace(id="things.make"), request_id="r", state={}
    )
    settings = SimpleNamespace(strict=True)
    whole: dict[str, Any] = dict.fromkeys(each.name for each in fields(Call) if each.init)
    known = {"rule": rule, "exchange": exchange, "services": SimpleNamespace(settings=settings)}
    return Call(**whole | known | {"org": SimpleNamespace(id="org_1")} | given)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What is given to the audit log and as events: of which organization, and of what."""
    found: list[tuple[Any, ...]] = []

    def entry(_db: Any, org_id: str, action: str, *, target: str, **_rest: Any) -> None:
        found.append((org_id, action, target))

    def event(_db: Any, org_id: str, kind: str, _data: Any, instance_id: str | None = None) -> None:
        found.append((org_id, kind, instance_id))

    monkeypatch.setattr(audit, "append", entry)
    monkeypatch.setattr(events, "append", event)
    return found


def test_an_event_is_of_the_instance_that_is_named(told: list[tuple[Any, ...]]) -> None:
    call = call_of()
    for instance in (Instance(id="inst_1"), None):
        call.emit(KIND, {}, instance)
    assert told == [("org_1", KIND, "inst_1"), ("org_1", KIND, None)]


def test_what_waits_to_be_recorded_is_of_the_organization_that_was_named(
    told: list[tuple[Any, ...]],
) -> None:
    call = call_of()
    call.wait_to_record()
    call.audit("thing_1")
    call.audit("thing_2", org=cast("Organization", SimpleNamespace(id="org_2")))
    assert told == []
    call.record(cast("Any", None))
    assert told == [("org_1", "thing.make", "thing_1"), ("org_2", "thing.make", "thing_2")]


def test_all_secrets_that_a_handler_would_tell_are_named() -> None:
    with pytest.raises(HandlerFault, match=r"^things.make tells password, token, which is secret$"):
        call_of().emit(KIND, {"token": "t", "name": "n", "password": "p"})


def test_what_a_reading_handler_has_changed_is_named(api: SmallApi) -> None:
    with api.database.read() as db:
        call = call_of(db=db)
        answer = Reply.ok({})
        assert call.checked(answer) is answer
        db.add(Project(id="proj_1", org_id="org_1", name="n", slug="s"))
        with pytest.raises(HandlerFault, match=r"^things.make reads, and changed a Project$"):
            call.checked(answer)
        db.expunge_all()


def test_a_password_that_was_not_sent_is_not_right() -> None:
    call = call_of()
    assert not call.is_password_right(User(id="user_1"))
    assert not call.is_password_right(None)


@pytest.mark.parametrize(("then", "status"), [(None, 500), ("answer_400", 400)])
def test_a_handler_that_takes_a_wrong_password_is_at_fault(
    api: SmallApi, then: str | None, status: int
) -> None:
    body = {"email": "ann@example.org", "password": "wrong"} | ({"then": then} if then else {})
    with capture_logs() as logs:
        assert api.post("/v1/take", json=body).status_code == status
    faults = [entry["exception"].splitlines()[-1] for entry in logs if "exception" in entry]
    told = "control.boundary.call.HandlerFault: samples.take took a wrong password"
    assert faults == ([told] if status == 500 else [])
