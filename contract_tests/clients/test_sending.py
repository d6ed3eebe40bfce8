"""Waits, ETags, cleared members, hints and rate limits, as the command line has them."""

import json
from typing import Any

import pytest

from clients.cli.options import options_of
from clients.document import Document
from contract_tests.clients.conftest import Cli
from contract_tests.clients.servers import new_id, problem
from contract_tests.clients.stand_in import ControlPlane, openapi

DOCUMENT = Document(openapi())


@pytest.fixture
def sales(home: object, plane: ControlPlane) -> str:
    return str(plane.world.add("sales")["id"])


def at(plane: ControlPlane, instance_id: str, more: str = "") -> str:
    return f"/v1/orgs/{plane.world.org_id}/instances/{instance_id}{more}"


def test_whatever_goes_on_after_its_answer_can_be_waited_for() -> None:
    expected = {
        one.id for one in DOCUMENT.operations.values() if "202" in one.raw.get("responses", {})
    }
    # Its answer is what there is of it: the organization is closed at once.
    expected -= {"orgs.close"}
    # What goes on is a letter, which nobody sees from here.
    expected -= {"password_resets.create", "me.change_email"}
    # It may be of thousands of deliveries, which are listed.
    expected -= {"webhooks.redeliver"}
    expected |= {"instances.create", "branches.create", "network.replace", "instances.get"}
    expected |= {"backups.create", "backups.restore"}
    assert {one.id for one in DOCUMENT.operations.values() if one.can_be_waited_for} == expected


def test_a_branch_is_waited_for(sales: str, plane: ControlPlane, cli: Cli) -> None:
    branch = plane.world.add("branch", status="requested")
    plane.script("POST", at(plane, sales, "/branches"), (201, {}, dict(branch)))
    ran = cli("branches", "create", "sales", "--wait", "-o", "json")
    assert (ran.code, json.loads(ran.out)["status"]) == (0, "running"), ran.err
    assert "branch is running" in ran.err


def test_an_instance_on_its_way_is_waited_for(sales: str, plane: ControlPlane, cli: Cli) -> None:
    plane.world.instances[sales] |= {"status": "provisioning"}
    ran = cli("instances", "get", "sales", "--wait", "-o", "json")
    assert (ran.code, json.loads(ran.out)["status"]) == (0, "running"), ran.err


@pytest.mark.parametrize(("end", "code"), [("verified", 0), ("failed", 1)])
def test_a_domain_is_waited_for(
    end: str, code: int, sales: str, plane: ControlPlane, cli: Cli
) -> None:
    domain: dict[str, Any] = {
        "id": new_id("dom"),
        "hostname": "db.example.com",
        "status": "pending",
    }
    domain |= {"created_at": "2026-11-21T09:00:00.000Z", "status_reason": None}
    ended = domain | {"status": end, "status_reason": "no CNAME record"}
    listed = at(plane, sales, "/domains")
    pages: list[Any] = [
        (200, {}, {"items": [one], "next_cursor": None}) for one in (domain, domain, ended)
    ]
    plane.script("GET", listed, *pages)
    plane.script("POST", f"{listed}/{domain['id']}/actions/verify", (202, {}, domain))
    ran = cli("domains", "verify", "sales", domain["id"], "--wait", "-o", "json")
    assert ran.code == code
    assert "db.example.com is pending" in ran.err
    assert ("no CNAME record" in ran.err) == bool(code)
    assert not code or not ran.out


@pytest.mark.parametrize(("end", "code"), [("completed", 0), ("failed", 1)])
@pytest.mark.parametrize("noun", ["backups", "restores"])
def test_what_a_request_made_is_waited_for(
    noun: str, end: str, code: int, sales: str, plane: ControlPlane, cli: Cli
) -> None:
    """Its id is in the answer, and not among what was asked."""
    made: dict[str, Any] = {"id": new_id("bkp"), "status": "pending", "status_reason": None}
    ended = made | {"status": end, "status_reason": "the store is full" if code else None}
    listed = at(plane, sales, f"/{noun}")
    plane.script("GET", f"{listed}/{made['id']}", *[(200, {}, one) for one in (made, ended)])
    source = new_id("bkp")
    asked = "" if noun == "backups" else f"/{source}/actions/restore"
    plane.script("POST", at(plane, sales, f"/backups{asked}"), (201, {}, made))
    words = ("create", "sales") if noun == "backups" else ("restore", "sales", source)
    ran = cli("backups", *words, "--wait", "-o", "json")
    assert ran.code == code, ran.err
    assert f"{made['id']} is pending" in ran.err
    assert ("the store is full" in ran.err) == bool(code)
    assert bool(code) or json.loads(ran.out)["status"] == end


def network(**members: object) -> dict[str, object]:
    return {"instance_id": "inst_x", "allow_cidrs": None, "applied": True} | members


def test_a_network_is_read_and_replaced_by_its_etag(
    sales: str, plane: ControlPlane, cli: Cli
) -> None:
    path = at(plane, sales, "/network")
    plane.script("GET", path, *[(200, {"ETag": '"3"'}, network())] * 2)
    assert '"3"' in cli("network", "get", "sales").out
    replaced = network(allow_cidrs=["192.0.2.0/24"], applied=False)
    plane.script("PUT", path, (200, {"ETag": '"4"'}, replaced))
    plane.script("GET", path, (200, {"ETag": '"4"'}, replaced), (200, {"ETag": '"4"'}, network()))
    ran = cli(
        "network", "replace", "sales", "--allow-cidrs", "192.0.2.0/24", "--wait", "-o", "json"
    )
    assert ran.code == 0, ran.err
    assert json.loads(ran.out) == network() | {"etag": '"4"'}
    assert plane.asked("PUT", "/network")[0].headers["If-Match"] == '"3"'


def test_a_wait_that_takes_too_long_says_what_it_waits_for(
    sales: str, plane: ControlPlane, cli: Cli
) -> None:
    path = at(plane, sales, "/network")
    told = network(applied=False, status_reason="the cell cannot be reached; it is tried again")
    plane.script("GET", path, *[(200, {"ETag": '"4"'}, told)] * 30)
    plane.script("PUT", path, (200, {"ETag": '"4"'}, told))
    ran = cli("network", "replace", "sales", "--clear-allow-cidrs", "--wait", "--wait-timeout", "1")
    assert ran.code != 0
    assert "the cell cannot be reached; it is tried again" in ran.err


def test_an_etag_of_ones_own_is_sent_as_it_is(sales: str, plane: ControlPlane, cli: Cli) -> None:
    path = at(plane, sales, "/network")
    changed = problem(412, "Precondition Failed", "the network has changed since it was read")
    plane.script("PUT", path, changed)
    ran = cli("network", "replace", "sales", "--clear-allow-cidrs", "--if-match", '"2"')
    assert ran.code == 5
    assert "nothing was changed. `menagerie network get` shows" in ran.err
    sent = plane.asked("PUT", "/network")[0]
    assert (sent.headers["If-Match"], sent.body) == ('"2"', {"allow_cidrs": None})
    assert not plane.asked("GET", "/network")


def test_every_member_that_may_be_null_is_cleared_by_a_flag(
    sales: str, plane: ControlPlane, cli: Cli
) -> None:
    nullable = {
        f"{operation.id} {one.field.name}"
        for operation in DOCUMENT.operations.values()
        for one in options_of(operation)
        if one.is_nullable
    }
    assert "network.replace allow_cidrs" in nullable
    assert "instances.update maintenance_window" in nullable
    for one in nullable:
        operation, _, name = one.partition(" ")
        noun, _, verb = operation.partition(".")
        out = cli(noun.replace("_", "-"), verb.replace("_", "-"), "--help").out
        assert f"--clear-{name.replace('_', '-')}" in out
    assert cli("instances", "update", "sales", "--clear-maintenance-window").code == 0
    assert plane.asked("PATCH", sales)[0].body == {"maintenance_window": None}
    both = cli("instances", "update", "sales", "--clear-maintenance-window",
               "--maintenance-window", '{"day": "sunday", "start": "03:00"}')  # fmt: skip
    assert (both.code, "--maintenance-window" in both.err) == (2, True)


@pytest.mark.parametrize(
    ("code", "command"),
    [
        ("mfa_required", "menagerie login --step-up"),
        ("session_required", "menagerie login"),
        ("password_required", "menagerie login"),
    ],
)
def test_what_is_lacking_is_named_with_its_command(
    code: str, command: str, sales: str, plane: ControlPlane, cli: Cli
) -> None:
    refused = problem(403, "Forbidden", "this needs something", code=code)
    plane.script("POST", at(plane, sales, "/actions/pause"), refused)
    ran = cli("instances", "pause", "sales")
    assert (ran.code, f"`{command}`" in ran.err) == (3, True), ran.err


def test_help_names_the_command_for_what_an_operation_needs(home: object, cli: Cli) -> None:
    out = " ".join(cli("network", "replace", "--help").out.split())
    assert "`menagerie login --step-up`" in out
    assert "user session: `menagerie login`" in out
    for asked in (("instances", "erase"), ("me", "change-password")):
        out = " ".join(cli(*asked, "--help").out.split())
        assert (
            "Needs the second factor if you have enrolled one: `menagerie login --step-up`" in out
        )


def test_a_wait_for_a_rate_limit_says_so_with_the_seconds(
    sales: str, plane: ControlPlane, cli: Cli
) -> None:
    busy = problem(429, "Too Many Requests", "too many requests")
    limited = (busy[0], {**busy[1], "Retry-After": "1"}, busy[2])
    plane.script("GET", f"/v1/orgs/{plane.world.org_id}/instances", limited)
    ran = cli("instances", "list")
    assert ran.code == 0
    assert "the rate limit is used up; trying again in 2 s" in ran.err or (
        "the rate limit is used up; trying again in 1 s" in ran.err
    )


def test_a_log_is_followed_from_as_far_back_as_wanted(
    sales: str, plane: ControlPlane, cli: Cli
) -> None:
    assert cli("logs", "sales", "--follow", "--tail", "5").out == "engine started\nready\n"
    assert cli("logs", "sales").code == 0
    asked = [one.query for one in plane.cell.seen if one.path.startswith("/v1/logs")]
    assert asked == [{"follow": "true", "tail_lines": "5"}, {}]


APPROVAL: dict[str, Any] = {
    "id": "apr_01JD7QK3V8Y2M4N6P8R0S2T4V6",
    "status": "pending",
    "reasons": [{"rule": "above_size", "message": "size s2 is\nabove s1"}],
    "expires_at": "2026-11-28T09:00:00.000Z",
}


def ordered(plane: ControlPlane, cli: Cli, *more: str) -> Any:
    path = f"/v1/orgs/{plane.world.org_id}/projects/{plane.world.project_id}/instances"
    plane.script("POST", path, (202, {"Location": "/v1/nowhere"}, dict(APPROVAL)))
    return cli("instances", "create", "--engine", "duckdb", "--size", "s2", "-o", "json", *more)


def test_an_order_that_needs_approval_is_shown_as_such(
    home: object, plane: ControlPlane, cli: Cli
) -> None:
    ran = ordered(plane, cli)
    assert (ran.code, json.loads(ran.out)) == (0, APPROVAL)
    assert "nothing is created yet" in ran.err
    assert "(size s2 is above s1)" in ran.err
    assert "`menagerie approvals get apr_01JD7QK3V8Y2M4N6P8R0S2T4V6`" in ran.err


def test_approval_is_not_waited_for(home: object, plane: ControlPlane, cli: Cli) -> None:
    ran = ordered(plane, cli, "--wait")
    assert (ran.code, ran.out) == (7, "")
    assert "error: nothing is created yet: this waits for approval until 2026-11-28" in ran.err
    assert "menagerie approvals get" in ran.err
    assert not [one for one in plane.seen if "wait_for" in one.query]


@pytest.mark.parametrize(("more", "sent"), [((), {}), (("--reason", "go"), {"reason": "go"})])
def test_a_reason_to_approve_may_be_left_out(
    more: tuple[str, ...], sent: Any, home: object, plane: ControlPlane, cli: Cli
) -> None:
    approval = APPROVAL["id"]
    path = f"/v1/orgs/{plane.world.org_id}/approvals/{approval}/actions/approve"
    told = {"approval_id": approval, "status": "approved", "instance_id": "inst_1"}
    plane.script("POST", path, (200, {}, told))
    ran = cli("approvals", "approve", approval, *more, "-o", "json")
    assert (ran.code, json.loads(ran.out)) == (0, told), ran.err
    assert plane.seen[-1].body == sent
