"""What a shell completes with: names, sizes, engines and regions, asked of the server."""

from collections.abc import Callable
from pathlib import Path

import pytest

from clients.cli.app import COMPLETE_VAR
from contract_tests.clients.conftest import Cli
from contract_tests.clients.stand_in import ControlPlane

Complete = Callable[..., list[str]]


@pytest.fixture
def complete(home: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Complete:
    """Ask as each shell's script does, and answer the words, or all that it is told.

    In this process; that the scripts start the program is shown by real shells
    (test_harmless_completion).
    """

    def completed(line: str, shell: str = "bash", *, whole: bool = False) -> list[str]:
        words = line.split(" ")
        asked = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
        if shell != "bash":
            asked = {"_TYPER_COMPLETE_ARGS": line}
        if shell == "fish":
            asked["_TYPER_COMPLETE_FISH_ACTION"] = "get-args"
        with monkeypatch.context() as patch:
            for name, value in {COMPLETE_VAR: f"complete_{shell}", **asked}.items():
                patch.setenv(name, value)
            ran = cli()
        assert not ran.err, ran.err
        if whole:
            return [ran.out]
        return ran.out.replace('"', " ").split()

    return completed


@pytest.mark.parametrize(
    ("line", "expected", "other"),
    [
        ("menagerie instances get sa", "sales", "orders"),
        ("menagerie query sa", "sales", "orders"),
        ("menagerie credentials sa", "sales", "orders"),
        ("menagerie instances create --size s", "s1", "f0"),
        ("menagerie instances create --engine ", "duckdb", "postgres"),
        ("menagerie instances create --region eu", "eu-1", "us-1"),
        ("menagerie instances create --project ma", "main-project", "sales"),
        ("menagerie instances create --maintenance-w", "--maintenance-window", "--engine"),
        ("menagerie credentials sales --client psy", "psycopg", "psql"),
    ],
)
def test_what_the_server_knows_is_completed(
    line: str, expected: str, other: str, plane: ControlPlane, complete: Complete
) -> None:
    plane.world.add("sales")
    plane.world.add("orders")
    for path, ids in (("/v1/sizes", ("f0", "s0", "s1")), ("/v1/regions", ("eu-1", "us-1"))):
        items = [{"id": one, "name": one} for one in ids]
        # An installation answers one or the other; both forms of a list are understood.
        plane.script("GET", path, (200, {}, {"items": items, "next_cursor": None}))
    found = complete(line)
    assert expected in found
    assert other not in found


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_every_shell_is_answered(shell: str, plane: ControlPlane, complete: Complete) -> None:
    plane.world.add("sales")
    assert any("sales" in word for word in complete("menagerie instances get sa", shell))


def test_a_server_that_is_away_leaves_what_the_document_says(
    plane: ControlPlane, complete: Complete, monkeypatch: pytest.MonkeyPatch, nowhere: str
) -> None:
    monkeypatch.setenv("MENAGERIE_BASE_URL", nowhere)
    assert complete("menagerie instances get sa") == []
    assert "postgres" in complete("menagerie instances create --engine po")


def test_what_is_deleted_is_completed_where_it_is_wanted_back(
    plane: ControlPlane, complete: Complete
) -> None:
    plane.world.add("sales", status="deleted")
    plane.world.add("salad")
    assert complete("menagerie instances undelete sa") == ["sales"]
    assert complete("menagerie instances get sa") == ["salad"]
