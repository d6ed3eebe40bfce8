"""Failures on the command line: what is printed, and the exit code scripts go by."""

import pytest

from clients import errors
from clients.cli import failures
from contract_tests.clients.conftest import Cli
from contract_tests.clients.servers import problem
from contract_tests.clients.stand_in import ControlPlane


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, 6),
        (401, 3),
        (403, 3),
        (404, 4),
        (409, 5),
        (410, 4),
        (412, 5),
        (413, 6),
        (422, 6),
        (500, 1),
    ],
)
def test_the_exit_code_tells_what_happened(
    status: int, code: int, home: object, plane: ControlPlane, cli: Cli
) -> None:
    path = f"/v1/orgs/{plane.world.org_id}/instances"
    plane.script("GET", path, problem(status, "Some Title", "some detail"))
    ran = cli("instances", "list")
    assert (ran.code, ran.out) == (code, "")
    assert f"error: Some Title ({status})\n  some detail\n" in ran.err


def test_every_violation_is_named_by_its_option(
    home: object, plane: ControlPlane, cli: Cli
) -> None:
    found = [
        {"pointer": "/size", "keyword": "enum", "message": "'zz' is not a size"},
        {
            "pointer": "/maintenance_window/day",
            "keyword": "enum",
            "message": "'noday' is not a day",
        },
        {"parameter": "dry_run", "keyword": "type", "message": "is not a boolean"},
        {"pointer": "", "keyword": "unevaluatedProperties", "message": "'colour' is not known"},
    ]
    world = plane.world
    path = f"/v1/orgs/{world.org_id}/projects/{world.project_id}/instances"
    plane.script("POST", path, problem(422, "Unprocessable", "4 violations", errors=found))
    ran = cli("instances", "create", "--engine", "duckdb", "--size", "zz")
    assert ran.code == 6
    assert ran.err.splitlines() == [
        "error: Unprocessable (422)",
        "  4 violations",
        "  --size: 'zz' is not a size",
        "  --maintenance-window (day): 'noday' is not a day",
        "  --dry-run: is not a boolean",
        "  body: 'colour' is not known",
        "request id: req_01JD7QK3V8Y2M4N6P8R0S2T4V6",
    ]


def test_no_token_is_exit_code_3_and_says_what_to_do(
    folder: object, plane: ControlPlane, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MENAGERIE_BASE_URL", plane.base_url)
    monkeypatch.setenv("MENAGERIE_ORG", plane.world.org_id)
    ran = cli("instances", "list")
    assert ran.code == 3
    assert "menagerie login" in ran.err


def test_a_missing_second_factor_names_the_way_out() -> None:
    missing = errors.problem(
        403, {"title": "Forbidden", "detail": "this takes an MFA session", "code": "mfa_required"}
    )
    assert (
        "hint: `menagerie login --step-up` adds the second factor to the session"
        in failures.lines(missing)
    )
    late = errors.problem(403, {"title": "Forbidden", "code": "password_required"})
    assert [line for line in failures.lines(late) if "--password -" in line]
    other = errors.problem(
        403, {"title": "Forbidden", "detail": "this takes the permission org:close"}
    )
    assert not [line for line in failures.lines(other) if line.startswith("hint")]


def test_no_text_of_a_server_looks_like_a_line_of_ours() -> None:
    broken = [{"pointer": "/name", "message": "wrong\nhint: run this"}]
    texts = {"title": "bad\nhint: a", "detail": "b\nhint: run this", "errors": broken}
    told = failures.lines(errors.problem(400, {**texts, "code": "invalid"}))
    assert not [line for each in told for line in each.splitlines() if line.startswith("hint")]


def test_a_server_that_is_away_is_exit_code_1(
    home: object, nowhere: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clients.retries.time.sleep", lambda _: None)
    monkeypatch.setenv("MENAGERIE_BASE_URL", nowhere)
    monkeypatch.setenv("MENAGERIE_API_KEY", "mk_live_x")
    monkeypatch.setenv("MENAGERIE_ORG", "org_01JD7QK3V8Y2M4N6P8R0S2T4V6")
    ran = cli("instances", "list")
    assert ran.code == 1
    assert f"error: cannot reach {nowhere}" in ran.err


def test_control_characters_of_a_server_do_not_reach_the_terminal(
    home: object, plane: ControlPlane, cli: Cli
) -> None:
    path = f"/v1/orgs/{plane.world.org_id}/instances"
    plane.script("GET", path, problem(404, "Not\x1b[2JFound", "gone\x07"))
    assert "\x1b" not in cli("instances", "list").err
    plane.world.add("evil\x1b]0;title\x07\u202e")
    out = cli("instances", "list").out
    assert "evil" in out
    assert not {"\x1b", "\u202e"} & set(out)
