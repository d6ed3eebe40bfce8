"""Every operation of openapi.yaml is a command: its help renders, its example is a command line."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clients.cli import operations
from clients.cli.options import options_of
from clients.document import Document
from contract_tests.by_day import one_in
from contract_tests.clients.conftest import Cli, bare, local
from contract_tests.clients.stand_in import ControlPlane, openapi, running

DOCUMENT = Document(openapi())
# Those whose command is made of the document; the others have tests of their own.
OPERATIONS = sorted(DOCUMENT.operations.keys() - operations.WRITTEN.keys())


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, shipped_cache: Path) -> Iterator[Path]:
    """A home that the tests of each operation share, as none of them changes it."""
    with pytest.MonkeyPatch.context() as patch:
        folder = bare(tmp_path_factory.mktemp("served"), patch, shipped_cache)
        with running(folder) as plane:
            yield local(plane, folder)


def words(operation_id: str) -> list[str]:
    operation = DOCUMENT.operations[operation_id]
    return [operation.noun.replace("_", "-"), operations.command_name(operation)]


@pytest.mark.parametrize("operation_id", one_in(3, OPERATIONS))
def test_help_names_every_field_and_shows_an_example(
    operation_id: str, served: object, cli: Cli
) -> None:
    ran = cli(*words(operation_id), "--help")
    assert ran.code == 0, ran.err
    operation = DOCUMENT.operations[operation_id]
    assert f"Example: menagerie {' '.join(words(operation_id))}" in ran.out
    assert operation.path in ran.out
    for option in options_of(operation):
        assert option.flag in ran.out


@pytest.mark.parametrize("operation_id", one_in(3, OPERATIONS))
def test_the_example_is_a_command_line_that_parses(
    operation_id: str, served: object, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    operation = DOCUMENT.operations[operation_id]
    example = operations.example(operation, options_of(operation))
    taken: list[dict[str, Any]] = []

    def note(operation: Any, options: Any, values: Any) -> None:
        required = [one for one in options if one.field.required and not one.context_flag]
        assert all(values[one.keyword] is not None for one in required)
        taken.append(
            {
                one.field.name: one.value(values[one.keyword])
                for one in options
                if values[one.keyword] not in (None, "-")
            }
        )

    monkeypatch.setattr(operations, "execute", note)
    ran = cli(*shlex.split(example)[1:])
    assert ran.code == 0, ran.err
    assert len(taken) == 1


def test_no_two_operations_share_a_command() -> None:
    assert len({tuple(words(one)) for one in OPERATIONS}) == len(OPERATIONS)


def test_no_two_options_of_a_command_share_a_name() -> None:
    for operation in DOCUMENT.operations.values():
        flags = [one.flag for one in options_of(operation)]
        keywords = [one.keyword for one in options_of(operation)]
        assert len(set(flags)) == len(flags), operation.id
        assert len(set(keywords)) == len(keywords), operation.id


def test_root_help_lists_resources_and_shortcuts(folder: object, cli: Cli) -> None:
    out = cli("--help").out
    for name in ("instances", "api-keys", "orgs", "query", "connect", "demo", "login", "profiles"):
        assert f" {name} " in out


def test_typed_values_travel_as_the_document_says(
    home: object, plane: ControlPlane, cli: Cli
) -> None:
    ran = cli(
        "instances", "create", "--engine", "duckdb", "--size", "s1", "--name", "sales", "--dry-run",
        "--storage-bytes", "20000000000",
        "--maintenance-window", '{"day": "sunday", "start": "03:00"}',
    )  # fmt: skip
    assert ran.code == 0, ran.err
    sent = plane.asked("POST", "/instances")[0]
    assert sent.query == {"dry_run": "true"}
    assert sent.body == {
        "engine": "duckdb",
        "size": "s1",
        "name": "sales",
        "storage_bytes": 20_000_000_000,
        "maintenance_window": {"day": "sunday", "start": "03:00"},
    }
    assert len(sent.headers["Idempotency-Key"]) == 32


def test_null_and_lists_and_files_and_whole_bodies(
    home: object, plane: ControlPlane, cli: Cli, tmp_path: Any
) -> None:
    sales = plane.world.add("sales")
    assert cli("instances", "update", "sales", "--maintenance-window", "null").code == 0
    assert plane.asked("PATCH", sales["id"])[-1].body == {"maintenance_window": None}
    order = tmp_path / "order.json"
    order.write_text('{"engine": "duckdb", "size": "f0"}')
    assert cli("instances", "create", "--body", f"@{order}", "--size", "s0").code == 0
    assert plane.asked("POST", "/instances")[-1].body == {"engine": "duckdb", "size": "s0"}
    cli(
        "api-keys", "create", "--name", "ci", "--scopes", "instances:read", "--scopes", "usage:read"
    )
    assert plane.asked("POST", "/api-keys")[-1].body == {
        "name": "ci",
        "scopes": ["instances:read", "usage:read"],
    }


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["instances", "create", "--size", "f0"], "--engine"),
        (["instances", "create", "--engine", "nosuch", "--size", "f0"], "nosuch"),
        (
            [
                "instances",
                "create",
                "--engine",
                "duckdb",
                "--size",
                "f0",
                "--maintenance-window",
                "{",
            ],
            "must be JSON",
        ),
        (["instances", "create", "--body", "@/nowhere"], "/nowhere"),
        (["api-keys", "create", "--name", "ci", "--scopes", "nosuch:right"], "nosuch:right"),
        (["instances", "list", "--limit", "0"], "--limit"),
        (["instances", "get"], "INSTANCE"),
        (["instances", "nosuch"], "nosuch"),
        (["nosuch"], "nosuch"),
        (["instances", "list", "--profile", "nosuch"], "nosuch"),
    ],
)
def test_a_wrong_command_line_is_exit_code_2_and_sends_nothing(
    argv: list[str], said: str, home: object, plane: ControlPlane, cli: Cli
) -> None:
    ran = cli(*argv)
    assert ran.code == 2
    assert said in ran.err
    assert not [one for one in plane.seen if one.path.startswith("/v1/")]


def test_names_stand_for_ids_from_the_org_down(home: object, plane: ControlPlane, cli: Cli) -> None:
    assert (
        cli(
            "instances",
            "create",
            "--org",
            "acme",
            "--project",
            "main",
            "--engine",
            "duckdb",
            "--size",
            "f0",
        ).code
        == 0
    )
    world = plane.world
    assert (
        plane.asked("POST", "/instances")[0].path
        == f"/v1/orgs/{world.org_id}/projects/{world.project_id}/instances"
    )
    plane.world.add("twice")
    plane.world.add("twice")
    ran = cli("instances", "get", "twice")
    assert ran.code == 2
    assert all(one in ran.err for one, made in world.instances.items() if made["name"] == "twice")
    ran = cli("instances", "get", "missing")
    assert (ran.code, "missing" in ran.err) == (4, True)


def test_pages_are_followed_on_demand(home: object, plane: ControlPlane, cli: Cli) -> None:
    for number in range(230):
        plane.world.add(f"db-{number}")
    assert len(cli("instances", "list", "-o", "json", "--all").out.split('"id"')) == 231
    assert [one.query["limit"] for one in plane.asked("GET", "/instances")] == ["200", "200"]
    plane.seen.clear()
    ran = cli("instances", "list", "-o", "json", "--limit", "205")
    assert ran.out.count('"id"') == 205
    assert [one.query["limit"] for one in plane.asked("GET", "/instances")] == ["200", "5"]
    ran = cli("instances", "list")
    assert "--cursor 50" in ran.err


def test_wait_ends_when_what_is_wanted_is_so(home: object, plane: ControlPlane, cli: Cli) -> None:
    ran = cli(
        "instances",
        "create",
        "--engine",
        "duckdb",
        "--size",
        "f0",
        "--name",
        "w",
        "--wait",
        "-o",
        "json",
    )
    assert ran.code == 0, ran.err
    assert '"status": "running"' in ran.out
    assert "w is running" in ran.err
    assert [one.query["wait_for"] for one in plane.asked("GET", "") if one.query] == [
        "running",
        "running",
    ]
    ran = cli("instances", "pause", "w", "--wait", "-o", "yaml")
    assert "status: paused" in ran.out


def test_wait_tells_a_failure_and_its_reason(home: object, plane: ControlPlane, cli: Cli) -> None:
    plane.next_status["provisioning"] = "failed"
    ran = cli("instances", "create", "--engine", "duckdb", "--size", "f0", "--name", "w", "--wait")
    assert ran.code == 1
    assert "w is failed and will not be running" in ran.err


def test_a_dry_run_does_not_wait(home: object, plane: ControlPlane, cli: Cli) -> None:
    order = {"order": {"engine": "duckdb"}, "cost_usd_cents_month": 0}
    world = plane.world
    path = f"/v1/orgs/{world.org_id}/projects/{world.project_id}/instances"
    plane.script("POST", path, (200, {}, order))
    ran = cli("instances", "create", "--engine", "duckdb", "--size", "f0", "--dry-run", "--wait")
    assert ran.code == 0
    assert "$0.00" in ran.out


def test_user_session_operations_use_the_session_and_others_the_key(
    home: object, plane: ControlPlane, cli: Cli
) -> None:
    cli("instances", "list")
    cli("sessions", "list")
    cli("system", "health")
    key, session = f"Bearer {plane.world.api_key}", f"Bearer {plane.world.session_token}"
    tokens = [one.token for one in plane.seen if one.path != "/openapi.json"]
    assert tokens == [key, session, None]


def test_a_command_only_the_server_knows_is_found(
    home: object, plane: ControlPlane, cli: Cli
) -> None:
    assert cli("instances", "list").code == 0
    plane.document["paths"]["/v1/dice"] = {
        "get": {"operationId": "dice.roll", "tags": ["Dice"], "responses": {}, "security": []}
    }
    plane.etag = '"two"'
    plane.script("GET", "/v1/dice", (200, {}, {"rolled": 4}))
    ran = cli("dice", "roll", "-o", "json")
    assert ran.code == 0, ran.err
    assert '"rolled": 4' in ran.out


def test_a_queue_is_named_by_its_name_alone(home: object, plane: ControlPlane, cli: Cli) -> None:
    """It has no id, so that its list need not be read, which needs a permission of its own."""
    sales = plane.world.add("sales")
    path = f"/v1/orgs/{plane.world.org_id}/instances/{sales['id']}/queues/jobs"
    plane.script("DELETE", path, (204, {}, None))
    ran = cli("queues", "delete", "sales", "jobs", "--yes")
    assert ran.code == 0, ran.err
    assert not [one for one in plane.seen if one.path.endswith("/queues")]


def test_what_a_query_asks_for_are_arguments_where_it_is_text() -> None:
    def flags(*described: tuple[str, str, bool]) -> list[str]:
        parameters = [
            {"name": name, "in": "query", "required": required, "schema": {"type": kind}}
            for name, kind, required in described
        ]
        get = {"operationId": "things.ask", "parameters": parameters, "responses": {}}
        document = Document({"paths": {"/v1/things": {"get": get}}})
        taken = options_of(document.operations["things.ask"])
        return [one.flag for one in taken if one.is_positional]

    record = ("thing_id", "string", False)
    other = ("other_id", "string", False)
    assert flags(record, ("what", "string", True), other) == ["WHAT", "THING"]
    assert flags(record, ("what", "array", True), ("sure", "boolean", True)) == []
    assert flags(record, other) == []
