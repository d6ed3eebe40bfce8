"""What cannot be undone demands the name or --yes, also where there is no terminal."""

import re

import pytest

from clients.cli import operations
from clients.cli.options import Option, options_of
from clients.document import Document, Operation
from contract_tests.clients.conftest import Cli
from contract_tests.clients.stand_in import ControlPlane, openapi

DOCUMENT = Document(openapi())
# By what a person would say of it; the document's own list is held against this one.
TAKES_AWAY = re.compile(
    r"\.(cancel|close|cutover|delete|drop|erase|purge|remove|revoke|restore|load"
    r"|disable)"
)
ASKING = [one for one in DOCUMENT.operations.values() if one.loss]
# Each undone by doing something ordinary, as the document says beside it.
ORDINARY = {
    *("sessions.revoke", "invites.revoke", "queues.delete_messages", "backups.restore"),
    "enterprise.detach",
}


def line(operation: Operation) -> list[str]:
    def value(option: Option) -> list[str]:
        return option.example() if option.field.required and not option.context_flag else []

    named = [word for one in options_of(operation) for word in value(one)]
    return [operation.noun.replace("_", "-"), operations.command_name(operation), *named]


def test_no_operation_that_takes_something_away_goes_without_asking() -> None:
    expected = {
        one.id
        for one in DOCUMENT.operations.values()
        if (TAKES_AWAY.search(one.id) or one.method == "DELETE") and one.method != "GET"
    }
    assert {one.id for one in ASKING} == expected - ORDINARY


@pytest.mark.parametrize("operation", ASKING, ids=lambda one: one.id)
def test_without_a_terminal_nothing_is_sent(
    operation: Operation, home: object, plane: ControlPlane, cli: Cli
) -> None:
    plane.seen.clear()
    ran = cli(*line(operation))
    assert ran.code == 2, ran.err
    assert "--yes" in ran.err
    assert "nothing was sent" in ran.err
    assert not [one for one in plane.seen if one.path != "/openapi.json"]


def test_yes_does_it_before_or_after_the_name(home: object, plane: ControlPlane, cli: Cli) -> None:
    sales = plane.world.add("sales")
    assert cli("instances", "delete", "--yes", "sales").code == 0
    assert len(plane.asked("DELETE", sales["id"])) == 1


def test_a_server_that_says_nothing_of_it_is_asked_before_deletes(
    home: object, plane: ControlPlane, cli: Cli
) -> None:
    for item in plane.document["paths"].values():
        for operation in item.values():
            if isinstance(operation, dict):
                operation.pop("x-confirm", None)
    plane.world.add("sales")
    assert cli("instances", "list").code == 0
    assert cli("instances", "delete", "sales").code == 2
    assert not plane.asked("DELETE", "")


def test_profiles_are_removed_with_yes_only(home: object, cli: Cli) -> None:
    assert cli("profiles", "set", "work", "base_url=https://db.example.com").code == 0
    assert cli("profiles", "remove", "work").code == 2
    assert "work" in cli("profiles", "list").out
    assert cli("profiles", "remove", "work", "--yes").code == 0
    assert "work" not in cli("profiles", "list").out


def test_a_load_that_drops_needs_yes(home: object, plane: ControlPlane, cli: Cli) -> None:
    ran = cli("load", "sales", "/nowhere.dump", "--clean")
    assert (ran.code, "--yes" in ran.err) == (2, True)
    assert not plane.seen


def test_a_deletion_says_until_when_and_how_to_have_it_back(
    home: object, plane: ControlPlane, cli: Cli
) -> None:
    paths = plane.document["paths"]
    deletion = "/v1/orgs/{org_id}/instances/{instance_id}"
    undelete = f"{deletion}/actions/undelete"
    pause = paths[f"{deletion}/actions/pause"]["post"]
    paths[undelete] = {"post": {**pause, "operationId": "instances.undelete"}}
    plane.world.add("sales", purge_after="2026-12-22T09:00:00.000Z")
    ran = cli("instances", "delete", "sales", "--yes")
    assert "kept until 2026-12-22 09:00:00Z; until then, `menagerie instances undelete sales`" in (
        ran.err
    )
    del paths[undelete]
    plane.etag = '"two"'
    plane.world.add("again", purge_after="2026-12-22T09:00:00.000Z")
    assert cli("instances", "nosuch").code == 2
    ran = cli("instances", "delete", "again", "--yes")
    assert ran.err.endswith("kept until 2026-12-22 09:00:00Z\n")
