"""The records of a path: found by the boundary, or the document is refused and nothing starts."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from contract_tests.boundary.document import ORG, operation
from contract_tests.boundary.handlers import samples as handlers
from contract_tests.boundary.small_api import MakeSmallApi, SmallApi
from control.boundary import DocumentRefused, check_document
from control.boundary.call import Call
from control.boundary.subjects import KINDS, RecordKind, Subject, resolve, subjects_of
from control.policy.rights import Rights
from specserver import Forbidden, HandlerMismatchError, NotFound
from storage.access import projects
from storage.access.scopes import RecordPlace
from storage.errors import RecordNotFound

INSTANCE = f"{ORG}/instances/{{instance_id}}"
DOMAIN = f"{INSTANCE}/domains/{{domain_id}}"

Change = Callable[[dict[str, Any]], None]


def only(path: str, **policy: Any) -> dict[str, Any]:
    return operation("things.change", path, "instances:write", audit="thing.change", **policy)


def check(path: str, described: dict[str, Any], method: str = "post") -> None:
    check_document({"paths": {path: {method: described}}})


def unsaid(described: dict[str, Any]) -> None:
    del described["parameters"][1]["x-record"]


def unknown(described: dict[str, Any]) -> None:
    described["parameters"][1]["x-record"] = "dream"


def no_reason(described: dict[str, Any]) -> None:
    described["parameters"][1]["x-record"] = "none"


def undescribed(described: dict[str, Any]) -> None:
    del described["parameters"][1]


def locks_another(described: dict[str, Any]) -> None:
    described["x-locks"] = ["domain"]


def locks_others(described: dict[str, Any]) -> None:
    described["x-locks"] = ["org", "domain"]


def cell_locks(described: dict[str, Any]) -> None:
    described |= {"x-done-by": "cell", "x-locks": ["instance"]}


@pytest.mark.parametrize(
    ("mistake", "fault"),
    [
        (unsaid, "{instance_id} does not say in x-record which record it names"),
        (
            unknown,
            f"x-record is 'dream', not one of org, {', '.join(KINDS)}, none",
        ),
        (
            no_reason,
            "{instance_id} names no record, but x-record-reason does not say why",
        ),
        (undescribed, "{instance_id} is not among its parameters"),
        (locks_another, "x-locks names domain, which the path does not"),
        (locks_others, "x-locks names domain, org, which the path does not"),
        (cell_locks, "x-locks is for changes that a transaction makes"),
    ],
)
def test_a_parameter_whose_record_nobody_finds_is_refused(mistake: Change, fault: str) -> None:
    described = only(INSTANCE)
    check(INSTANCE, described)
    mistake(described)
    with pytest.raises(DocumentRefused) as refused:
        check(INSTANCE, described)
    assert refused.value.faults == [f"things.change: {fault}"]


def test_a_record_is_found_within_what_the_path_names_before_it() -> None:
    check(DOMAIN, only(DOMAIN))
    flat = f"{ORG}/domains/{{domain_id}}"
    with pytest.raises(DocumentRefused) as refused:
        check(flat, only(flat))
    told = "things.change: domain is found within instance, which the path does not name"
    assert refused.value.faults == [told]


def test_what_a_reading_operation_or_a_cell_would_hold_is_refused() -> None:
    for method, changes in (("get", {}), ("post", {"x-done-by": "cell"})):
        described = only(DOMAIN) | {"x-locks": []} | changes
        with pytest.raises(DocumentRefused) as refused:
            check(DOMAIN, described, method)
        told = "things.change: x-locks is for changes that a transaction makes"
        assert refused.value.faults == [told]
    check(DOMAIN, only(DOMAIN) | {"x-locks": ["instance", "domain"]})


def test_parameters_of_the_path_are_in_its_order_and_others_are_none() -> None:
    described = only(DOMAIN)
    described["parameters"].reverse()
    described["parameters"].append({"name": "limit", "in": "query", "schema": {}})
    check(DOMAIN, described)
    named = [(one.name, one.parameter) for one in subjects_of(DOMAIN, "POST", described)]
    assert named == [("instance", "instance_id"), ("domain", "domain_id")]


def locked(path: str, method: str = "POST", **described: Any) -> list[str]:
    whole = only(path) | {f"x-{name.replace('_', '-')}": value for name, value in described.items()}
    return [one.name for one in subjects_of(path, method, whole) if one.lock]


def test_what_a_change_is_about_is_held_and_what_is_read_is_not() -> None:
    assert locked(DOMAIN) == locked(DOMAIN, "DELETE") == ["domain"]
    assert locked(DOMAIN, locks=["instance", "domain"]) == ["instance", "domain"]
    assert locked(DOMAIN, "GET") == locked(DOMAIN, locks=[]) == locked(DOMAIN, done_by="cell") == []


def test_a_handler_that_asks_for_an_id_does_not_start(
    make_api: MakeSmallApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    def looks_up(call: Call, project_id: str) -> dict[str, Any]:
        assert call.org is not None
        return {"id": projects.fetch(call.db, call.org.id, project_id).id}

    monkeypatch.setattr(handlers, "project", looks_up)
    with pytest.raises(HandlerMismatchError, match=r"asks for call, project_id.*gives.* project"):
        make_api()


def test_a_handler_is_given_the_record(api: SmallApi) -> None:
    ann = api.person()
    org = api.org((ann, "owner"))
    body = {"name": "n", "slug": "s"}
    made = api.post(f"/v1/orgs/{org}/projects", ann.session, json=body).json()["id"]
    assert api.get(f"/v1/orgs/{org}/projects/{made}", ann.session).json() == {"id": made}


def test_a_key_has_no_session_of_its_own(api: SmallApi) -> None:
    caller = SimpleNamespace(session=None, user=SimpleNamespace(id=api.person().id), held_to=None)
    with api.database.read() as db:
        call = cast("Call", SimpleNamespace(db=db, now=api.database.now(db), caller=caller))
        with pytest.raises(RecordNotFound):
            KINDS["session"].find(call, {}, "current", lock=False)


def test_a_record_that_may_be_seen_and_not_changed_is_no_secret() -> None:
    project = SimpleNamespace(place=RecordPlace("team_1", "proj_1"))
    shown = RecordKind(ORG, lambda *_given, **_lock: project, shown_by="projects:read")
    rule = SimpleNamespace(
        permission="projects:write", subjects=[Subject("project", "project_id", False, shown)]
    )
    exchange = SimpleNamespace(arguments={"project_id": "proj_1"})
    for team_id, refusal in (("team_1", Forbidden), ("team_2", NotFound)):
        rights = Rights(in_teams={team_id: frozenset({"projects:read"})})
        given = {"rule": rule, "exchange": exchange, "caller": SimpleNamespace(rights=rights)}
        with pytest.raises(refusal):
            resolve(cast("Call", SimpleNamespace(**given)))
