"""How answers look: tables, JSON, YAML, and what goes into a pipe."""

import json

import pytest
import yaml

from clients.cli import output
from contract_tests.clients.conftest import Cli
from contract_tests.clients.stand_in import ControlPlane


def test_json_into_a_pipe_is_nothing_but_json(home: object, plane: ControlPlane, cli: Cli) -> None:
    sales = plane.world.add("sales")
    ran = cli("instances", "list", "-o", "json")
    assert json.loads(ran.out) == {"items": [sales], "next_cursor": None}
    assert "\x1b" not in ran.out
    assert yaml.safe_load(cli("instances", "get", "sales", "-o", "yaml").out)["id"] == sales["id"]


def test_the_format_may_be_set_once_for_all(
    home: object, plane: ControlPlane, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    plane.world.add("sales")
    monkeypatch.setenv("MENAGERIE_OUTPUT", "json")
    assert json.loads(cli("instances", "get", "sales").out)["name"] == "sales"
    assert "{" not in cli("instances", "get", "sales", "-o", "table").out


def test_tables_in_a_pipe_are_neither_cut_nor_folded(
    home: object, plane: ControlPlane, cli: Cli
) -> None:
    sales = plane.world.add("a" * 120)
    out = cli("instances", "list").out
    assert sales["id"] in out
    assert "a" * 120 in out


def test_a_cursor_drives_no_terminal(home: object, plane: ControlPlane, cli: Cli) -> None:
    page = {"items": [plane.world.add("sales")], "next_cursor": "\x1b]0;owned\x07"}
    path = f"/v1/orgs/{plane.world.org_id}/instances"
    plane.script("GET", path, (200, {}, page))
    ran = cli("instances", "list")
    assert "--cursor" in ran.err
    assert not {"\x1b", "\x07"} & set(ran.err)


def test_columns_are_the_ones_people_look_for() -> None:
    rows = [
        {"created_at": "t", "status": "running", "org_id": "o", "id": "i", "name": "n",
         "updated_at": "t", "nothing": None, "nested": {"a": 1}, "size": "f0",
         "scopes": ["a", "b"]},
    ]  # fmt: skip
    assert output.columns(rows) == ["id", "name", "size", "status", "scopes", "created_at"]
    assert len(output.columns([{f"c{number}": 1 for number in range(30)}])) == output.COLUMNS_MAX


def test_a_price_is_among_the_columns() -> None:
    sizes = {f"storage_bytes_{number}": 1 for number in range(20)} | {"price_usd_cents_month": 5}
    assert "price_usd_cents_month" in output.columns([{"id": "s0", **sizes}])


def test_a_narrow_terminal_gets_the_columns_it_has_room_for() -> None:
    cells = {"id": ["i" * 31], "name": ["sales"], "reason": ["r" * 90], "status": ["running"]}
    assert output.fitting(cells, 120) == list(cells)
    assert output.fitting(cells, 60) == ["id", "name", "status"]
    assert output.fitting(cells, 10) == ["id"]


def test_cells_read_well() -> None:
    cells = {
        ("memory_bytes", 536_870_912): "512 MiB",
        ("storage_bytes", 1_000_000_000): "1 GB",
        ("storage_bytes_max", 16_000_000_000_000): "16 TB",
        ("used_bytes", 81_264_641): "77.5 MiB",
        ("used_bytes", 0): "0 B",
        ("created_at", "2026-11-21T10:09:56.880Z"): "2026-11-21 10:09:56Z",
        ("price_usd_cents_month", 187_000): "$1,870.00",
        ("running_s", 506.0930000000001): "506.093",
        ("vcpu", 0.063): "0.063",
        ("flag", True): "yes",
        ("none", None): "",
        ("text", "plain"): "plain",
        ("port", 8443): "8443",
    }
    assert {key: output.cell(*key) for key in cells} == cells
    assert output.cell("scopes", ["a", "b"]) == "a, b"
    assert output.cell("window", {"day": "sunday"}) == '{"day": "sunday"}'


def test_an_empty_list_says_so_outside_the_answer(home: object, cli: Cli) -> None:
    ran = cli("instances", "list")
    assert (ran.code, ran.out, ran.err) == (0, "", "no results\n")


def test_text_answers_come_as_they_are(home: object, plane: ControlPlane, cli: Cli) -> None:
    plane.world.add("sales")
    assert cli("instances", "ca", "sales").out == plane.ca_pem


def test_no_content_says_done_outside_the_answer(home: object, cli: Cli) -> None:
    ran = cli("sessions", "revoke", "current")
    assert (ran.code, ran.out, ran.err) == (0, "", "sessions.revoke: done\n")


def test_what_is_within_a_record_is_shown_by_its_path(
    home: object, plane: ControlPlane, cli: Cli
) -> None:
    orgs = [{"id": "org_1", "name": "Acme"}]
    answer = {
        "kind": "user",
        "user": {"email": "a@b", "mfa": {"on": True}},
        "none": {},
        "orgs": orgs,
    }
    plane.script("GET", "/v1/me", (200, {}, answer))
    lines = [line.split() for line in cli("me", "get").out.splitlines() if line.strip()]
    assert ["user.email", "a@b"] in lines
    assert ["user.mfa.on", "yes"] in lines
    assert ["org_1", "Acme"] in lines


def test_what_explains_a_record_comes_first_and_once(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_record({"allowed": True, "explanation": "Allowed: by \x1b[31mhalf.", "by": []})
    first, empty, *rest = capsys.readouterr().out.splitlines()
    assert first == "Allowed: by \N{REPLACEMENT CHARACTER}[31mhalf."
    assert empty == ""
    assert "explanation" not in "".join(rest)
    assert "allowed" in rest[0]
