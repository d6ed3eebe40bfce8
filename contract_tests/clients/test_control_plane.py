"""The clients against the real control plane over HTTP; only the cell behind it is a fake."""

import asyncio
import io
import json
import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pyotp
import pytest
import structlog
import uvicorn

from clients import errors, following
from clients.client import Client
from clients.profiles import resolve
from contract_tests.api.harness import PASSWORD, House, Tenant
from contract_tests.api.streams import happen
from contract_tests.clients.conftest import Cli
from contract_tests.databases import Databases
from storage.events import events

DEADLINE_S = 30.0


@dataclass(frozen=True)
class Served:
    """A house on a port, with one tenant in it."""

    base_url: str
    house: House
    tenant: Tenant


class Worker(threading.Thread):
    """Does the house's work as it comes in, as `menagerie worker` would."""

    def __init__(self, house: House) -> None:
        super().__init__()
        self._house = house
        self._done = threading.Event()

    def run(self) -> None:
        while not self._done.wait(0.02):
            # Not to its end: a request may order more while the last of it is done.
            self._house.turns(200)

    def stop(self) -> None:
        self._done.set()
        self.join()


@pytest.fixture(scope="module")
def served(databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    # Its log would stand among the answers of the command line, which runs in this process too.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    with House(databases.migrated("sqlite"), tmp_path_factory.mktemp("house")) as house:
        settings = uvicorn.Config(
            house.app, host="127.0.0.1", port=0, log_level="error", lifespan="on"
        )
        server = uvicorn.Server(settings)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve()))
        worker = Worker(house)
        thread.start()
        worker.start()
        try:
            deadline = time.monotonic() + DEADLINE_S
            while not server.started:
                assert time.monotonic() < deadline, "the API did not start"
                time.sleep(0.02)
            port = server.servers[0].sockets[0].getsockname()[1]
            yield Served(f"http://127.0.0.1:{port}", house, house.tenant("Acme", plan="enterprise"))
        finally:
            worker.stop()
            server.should_exit = True
            thread.join()
            structlog.reset_defaults()


@pytest.fixture
def tenant(served: Served, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Tenant:
    """The tenant, with the command line set up for it."""
    tenant = served.tenant
    for name, value in {
        "BASE_URL": served.base_url,
        "API_KEY": tenant.key,
        "SESSION_TOKEN": tenant.owner.session,
        "ORG": tenant.org_id,
        "PROJECT": tenant.project_id,
    }.items():
        monkeypatch.setenv(f"MENAGERIE_{name}", value)
    return tenant


@pytest.fixture
def answer(tenant: Tenant, cli: Cli) -> Any:
    """Run a command and answer its JSON."""

    def answered(*argv: str) -> Any:
        ran = cli(*argv, "-o", "json")
        assert ran.code == 0, ran.err
        return json.loads(ran.out) if ran.out else None

    return answered


def test_the_life_of_an_instance(answer: Any, cli: Cli) -> None:
    made = answer(
        "instances", "create", "--engine", "duckdb", "--size", "f0", "--name", "life", "--wait"
    )
    assert made["status"] == "running"
    assert answer("instances", "pause", "life", "--wait")["status"] == "paused"
    assert answer("instances", "resume", "life", "--wait")["status"] == "running"
    assert answer("instances", "update", "life", "--size", "s0", "--wait")["size"] == "s0"
    changes = answer("instances", "changes", "life")["items"]
    assert [(one["kind"], one["old"], one["new"]) for one in changes] == [("size", "f0", "s0")]
    assert answer("instances", "delete", "life", "--yes", "--wait")["status"] == "deleted"
    assert cli("instances", "delete", made["id"], "--yes").code == 5
    assert cli("instances", "get", "nosuch").code == 4


def test_what_is_deleted_is_found_by_its_name_and_restored(answer: Any, cli: Cli) -> None:
    def made() -> str:
        order = ["instances", "create", "--engine", "duckdb", "--size", "f0", "--name", "back"]
        return str(answer(*order, "--wait")["id"])

    first = made()
    ran = cli("instances", "delete", "back", "--yes", "--wait")
    assert "`menagerie instances undelete back` restores it" in ran.err
    assert answer("instances", "get", "back")["status"] == "deleted"
    second = made()
    assert answer("instances", "get", "back")["id"] == second
    # What is wanted back is the deleted one, and its name is another's now.
    assert cli("instances", "undelete", "back").code == 5
    assert answer("instances", "update", "back", "--name", "front")["id"] == second
    assert answer("instances", "undelete", "back", "--wait")["id"] == first
    for name in ("back", "front"):
        cli("instances", "erase", name, "--yes", "--wait")


def test_a_dry_run_prices_and_places_nothing(answer: Any) -> None:
    preview = answer(
        "instances", "create", "--engine", "duckdb", "--size", "s1", "--name", "dry", "--dry-run"
    )
    assert preview["order"]["size"] == "s1"
    assert answer("instances", "list", "--name", "dry")["items"] == []


def test_every_violation_is_named_by_its_option(tenant: Tenant, cli: Cli) -> None:
    ran = cli("instances", "create", "--engine", "duckdb", "--size", "s99", "--region", "nowhere")
    assert ran.code == 6
    assert "--size" in ran.err
    assert "--region" in ran.err
    assert "request id: " in ran.err


def test_pages_are_followed_by_their_cursors(answer: Any) -> None:
    made = {answer("projects", "create", "--name", f"Paged {number}")["id"] for number in range(5)}
    one_by_one = []
    cursor: list[str] = []
    while True:
        page = answer("projects", "list", *cursor)
        one_by_one += [one["id"] for one in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = ["--cursor", page["next_cursor"]]
    everything = [one["id"] for one in answer("projects", "list", "--all")["items"]]
    assert made < set(everything)
    assert everything == one_by_one
    assert [one["id"] for one in answer("projects", "list", "--limit", "2")["items"]] == everything[
        :2
    ]


def test_a_project_by_its_slug(answer: Any, tenant: Tenant) -> None:
    made = answer("projects", "create", "--name", "By Slug", "--slug", "by-slug")
    assert answer("projects", "get", "by-slug")["id"] == made["id"]
    ordered = answer(
        "instances", "create", "--engine", "duckdb", "--size", "f0", "--project", "by-slug"
    )
    assert ordered["project_id"] == made["id"]


def test_people_and_what_they_may_are_asked_for_by_name(
    answer: Any, cli: Cli, served: Served, tenant: Tenant
) -> None:
    ada = served.house.member(tenant.org_id, "auditor")
    changed = answer("members", "update", ada.email, "--role", "member")
    assert (changed["user_id"], changed["role"]) == (ada.id, "member")
    # Whoever is put into a team is not in its list yet.
    answer("teams", "create", "--name", "Asked")
    assert (
        answer("team-members", "set", "Asked", ada.email, "--role", "viewer")["user_id"] == ada.id
    )
    assert cli("team-members", "remove", "Asked", ada.email, "--yes").code == 0
    answer("instances", "create", "--engine", "duckdb", "--size", "f0", "--name", "asked", "--wait")
    told = answer("access", "explain", ada.email, "instances.delete", "asked")
    assert (told["user_id"], told["allowed"]) == (ada.id, True)
    assert told["by"][0]["team_id"] is not None
    ran = cli("access", "explain", ada.id, "orgs.close")
    first, _, rest = ran.out.partition("\n\n")
    assert first.startswith("Not allowed: none of their roles has org:close.")
    assert first not in rest
    assert "needs" in rest
    assert cli("access", "explain", "nobody@example.org", "orgs.close").code == 4
    assert cli("access", "explain", ada.email).code == 2
    answer("instances", "erase", "asked", "--yes", "--wait")


def test_keys_come_and_go(answer: Any, cli: Cli, served: Served) -> None:
    made = answer(
        "api-keys", "create", "--name", "ci", "--role", "member", "--scopes", "instances:read"
    )
    with Client(served.base_url, api_key=made["key"], org_id=served.tenant.org_id) as client:
        assert client.call("instances.list")["items"] is not None
        with pytest.raises(errors.Forbidden):
            client.call("projects.create", name="No")
        assert cli("api-keys", "revoke", "ci", "--yes").code == 0
        with pytest.raises(errors.Unauthenticated):
            client.call("instances.list")


def test_one_idempotency_key_makes_one_project(tenant: Tenant, served: Served) -> None:
    with Client(served.base_url, api_key=tenant.key, org_id=tenant.org_id) as client:
        answers = [
            client.call("projects.create", name="Once", idempotency_key="once") for _ in range(3)
        ]
        assert len({one["id"] for one in answers}) == 1
        with pytest.raises(errors.Invalid):
            client.call("projects.create", name="Twice", idempotency_key="once")


def test_signing_in_and_out(
    tenant: Tenant, served: Served, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MENAGERIE_SESSION_TOKEN")
    monkeypatch.setattr("sys.stdin", io.StringIO(PASSWORD + "\n"))
    person = served.house.person("Ada")
    assert cli("login", "--email", person.email, "--password-stdin").code == 0
    monkeypatch.delenv("MENAGERIE_API_KEY")
    assert str(resolve().session_token).startswith("ms_")
    assert person.email in cli("me", "get").out
    made = cli("orgs", "create", "--name", "Ada's")
    assert made.code == 0, made.err
    assert cli("logout").code == 0
    assert cli("me", "get").code == 3


def test_what_takes_a_second_factor_says_so(tenant: Tenant, cli: Cli) -> None:
    ran = cli("orgs", "close", "--no-erase-everything", "--yes")
    assert ran.code == 3
    assert "menagerie login --step-up" in ran.err


def test_an_owner_erases_and_waits_for_it(answer: Any) -> None:
    made = answer("instances", "create", "--engine", "duckdb", "--size", "f0", "--wait")
    assert answer("instances", "erase", made["id"], "--yes", "--wait")["status"] == "erased"


def test_stepping_up_with_an_authenticator(
    tenant: Tenant, served: Served, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    house, person = served.house, served.house.person("Grace")
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{PASSWORD}\n"))
    with Client(served.base_url, session_token=person.session) as client:
        enrolled = client.call("me.enrol_totp", password=PASSWORD)
        codes = pyotp.TOTP(enrolled["secret"])
        client.call("me.confirm_totp", code=codes.at(house.now()))
        house.pass_time(60)
    assert cli("login", "--email", person.email, "--password-stdin").code == 0
    monkeypatch.delenv("MENAGERIE_SESSION_TOKEN")
    monkeypatch.delenv("MENAGERIE_API_KEY")
    ran = cli("login", "--step-up", "--totp-code", codes.at(house.now()))
    assert ran.code == 0, ran.err
    assert cli("me", "get", "-o", "yaml").out.count("assurance: mfa") == 1


def test_another_org_is_not_there(served: Served, tenant: Tenant, cli: Cli) -> None:
    other = served.house.tenant("Other")
    assert cli("instances", "list", "--org", other.org_id).code == 4
    assert cli("instances", "get", "missing").code == 4


def test_every_list_and_record_shows_as_a_table(answer: Any, cli: Cli) -> None:
    answer("instances", "create", "--engine", "duckdb", "--size", "f0")
    for noun in (
        "engines",
        "plans",
        "regions",
        "sizes",
        "orgs",
        "projects",
        "instances",
        "api-keys",
        "sessions",
    ):
        ran = cli(noun, "list")
        assert ran.code == 0, ran.err
        assert "id" in ran.out.split()
    assert "connections" in cli("sizes", "list").out
    assert "BEGIN CERTIFICATE" in cli("orgs", "ca").out
    for argv in (["me", "get"], ["orgs", "get"], ["permissions", "mine"], ["system", "health"]):
        assert cli(*argv).code == 0


def test_the_served_document_drives_the_same_commands(served: Served, tenant: Tenant) -> None:
    served_document = httpx.get(f"{served.base_url}/openapi.json", timeout=30).json()
    with Client(served.base_url) as client:
        known = client.document.operations
        assert client.document.raw == served_document
    assert known["sessions.list"].needs_session
    assert known["instances.create"].answers_with_status
    assert known["instances.list"].is_page
    assert known["instances.erase"].policy["role"] == "owner"


def test_a_stream_goes_on_where_it_was_until_it_is_refused(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The house ends each stream after a fifth of a second, so this takes several of them."""
    monkeypatch.setattr(following, "AGAIN_AFTER_S", 0.0)
    tenant = served.house.tenant()
    instance_id = served.house.instance(tenant, running=False)
    with Client(served.base_url, api_key=tenant.key, org_id=tenant.org_id) as client:
        operation = client.operation("events.follow")
        assert operation.is_stream
        assert not client.operation("audit.export").is_stream
        found = following.follow(client, operation, {"last_event_id": events.FIRST})
        assert json.loads(next(found))["type"] == "instance.requested.v1"
        for _ in range(3):
            made = happen(served.house, tenant.org_id, instance_id)
            kinds = [json.loads(next(found))]
            while kinds[-1]["type"] != "instance.paused.v1":
                kinds.append(json.loads(next(found)))
            assert kinds[-1]["id"] == made[0]
            time.sleep(0.3)
        served.house.change_key(tenant.org_id, tenant.key_id, revoked_at=served.house.now())
        with pytest.raises(errors.Unauthenticated):
            list(found)
