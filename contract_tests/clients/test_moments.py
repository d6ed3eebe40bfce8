"""Points in time on the command line: without an offset they are UTC, and it says so."""

import pytest

from clients.cli import moments
from contract_tests.clients.conftest import Cli
from contract_tests.clients.stand_in import ControlPlane


@pytest.mark.parametrize(
    ("typed", "sent", "is_told"),
    [
        ("2026-11-22 10:00", "2026-11-22T10:00:00+00:00", True),
        ("2026-11-22T10:00:30.5", "2026-11-22T10:00:30.500000+00:00", True),
        ("2026-11-22", "2026-11-22T00:00:00+00:00", True),
        ("2026-11-22 11:00+01:00", "2026-11-22T11:00:00+01:00", False),
        ("2026-11-22T10:00:00Z", "2026-11-22T10:00:00+00:00", False),
        ("yesterday", "yesterday", False),
    ],
)
def test_a_time_without_an_offset_is_utc(
    typed: str, sent: str, is_told: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert moments.as_instant(typed, "--at") == sent
    assert ("UTC" in capsys.readouterr().err) is is_told


@pytest.mark.parametrize("command", [("backups", "restore"), ("restore",)], ids=" ".join)
def test_a_restore_to_a_moment_needs_no_name_of_a_backup(
    home: object, plane: ControlPlane, cli: Cli, command: tuple[str, ...]
) -> None:
    sales = plane.world.add("sales")
    ran = cli(*command, "sales")
    assert ran.code == 2
    assert "BACKUP" in ran.err
    assert "--at" in ran.err
    ran = cli(*command, "sales", "--at", "2026-11-22 10:00")
    assert "--at: taken as 2026-11-22 10:00:00 UTC" in ran.err
    assert plane.asked("GET", f"{sales['id']}/backups"), "one that can be restored is looked for"


def test_a_branch_is_made_at_a_moment(home: object, plane: ControlPlane, cli: Cli) -> None:
    plane.world.add("sales")
    cli("branches", "create", "sales", "--at", "2026-11-22T11:00+01:00")
    (asked,) = plane.asked("POST", "/branches")
    assert asked.body == {"at": "2026-11-22T11:00:00+01:00"}
