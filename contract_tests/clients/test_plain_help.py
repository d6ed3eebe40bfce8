"""What a server's document says reaches a terminal as text: in help, in errors, in questions."""

import copy
from typing import Any

import pytest

from clients.cli.output import CONTROL
from contract_tests.clients.conftest import Cli
from contract_tests.clients.stand_in import ControlPlane

EVIL = "\x1b]0;title\x07\x1b[31mred\u202edrow\x9b31m\x7f\u2066"
OPERATION = "instances.ev\x1b[31mil"


@pytest.fixture
def hostile(home: object, plane: ControlPlane, cli: Cli) -> ControlPlane:
    """Every text and name of the document holds what drives a terminal."""
    paths: dict[str, Any] = plane.document["paths"]
    for item in paths.values():
        for operation in (one for one in item.values() if isinstance(one, dict)):
            operation["summary"] = operation["description"] = f"says {EVIL}"
            for parameter in operation.get("parameters", []):
                if "description" in parameter:
                    parameter["description"] += EVIL
    for tag in plane.document["tags"]:
        tag["description"] = EVIL
    listing = paths["/v1/orgs/{org_id}/instances"]["get"]
    choice = {"type": "string", "enum": [f"x{EVIL}", "y"], "default": f"x{EVIL}"}
    listing["parameters"] += [
        {"name": "odd", "in": "query", "schema": choice, "description": EVIL},
        {"name": f"a{EVIL}b", "in": "query", "required": True, "schema": {"type": "string"}},
    ]
    made = copy.deepcopy(listing)
    made |= {"operationId": OPERATION, "x-confirm": EVIL}
    made["parameters"] = [
        {"name": f"thing{EVIL}_id", "in": "path", "required": True, "schema": {"type": "string"}}
    ]
    paths[f"/v1/evil/{{thing{EVIL}_id}}"] = {"get": made}
    cli("instances", "bogus")  # fetches the document
    return plane


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["instances"],
        ["instances", "--help"],
        ["instances", "list", "--help"],
        ["instances", "create", "--help"],
        ["instances", "bogus"],
        ["instances", "list", "--odd", "z"],
        ["instances", "list", "--odd", "y"],
        ["instances", "list", "--od", "z"],
        ["instances", "list", "--odd"],
        ["instances", "list", "surplus"],
        ["instances", OPERATION.partition(".")[2]],
        ["instances", OPERATION.partition(".")[2], "--help"],
        ["instances", OPERATION.partition(".")[2], "x"],
        ["instances", OPERATION.partition(".")[2], "x", "--yes"],
    ],
)
def test_no_control_character_is_printed(words: list[str], hostile: ControlPlane, cli: Cli) -> None:
    ran = cli(*words)
    said = ran.out + ran.err
    assert said
    assert not CONTROL.findall(said), ran
    if words[-1] == "--help" and len(words) > 1:
        assert "says \N{REPLACEMENT CHARACTER}]0;title" in said


def test_help_still_has_its_lines(home: object, cli: Cli) -> None:
    said = cli("instances", "create", "--help").out
    assert "\nOptions:\n" in said
    assert "\N{REPLACEMENT CHARACTER}" not in said
