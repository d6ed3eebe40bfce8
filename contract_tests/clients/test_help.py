"""Help is quick and has an example; what is misspelt is understood; options stand anywhere."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from clients.cli import app
from clients.cli.app import SHORTCUT_MODULES
from clients.cli.options import first_paragraph, options_of
from clients.source import SHIPPED, DocumentSource
from contract_tests.by_day import one_in
from contract_tests.clients.conftest import Cli
from contract_tests.clients.stand_in import ROOT, ControlPlane
from menagerie import commands, contract

NESTED = {"profiles": ("list", "use", "set", "remove", "show"), "completion": ("show", "install")}
SHORTCUTS = [[one] for one in SHORTCUT_MODULES if one not in NESTED]
SHORTCUTS += [[group, one] for group, names in NESTED.items() for one in names]
SLOW = {
    "httpx", "rich", "yaml", "ssl", "asyncio", "duckdb", "psycopg", "pymysql", "valkey",
    "pydantic_settings", "sqlalchemy",
}  # fmt: skip


def loaded(*argv: str) -> set[str]:
    """What a process has loaded once it has run this command line."""
    program = (
        "import json, sys; from menagerie import commands; from clients.cli import app, run;"
        "commands.register(app); code = run(sys.argv[1:]);"
        "sys.stderr.write(json.dumps([code, sorted(sys.modules)]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *argv],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    code, modules = json.loads(done.stderr)
    assert code == 0
    return set(modules)


@pytest.mark.parametrize(
    "argv", one_in(3, [[], ["instances"], ["instances", "create"], ["query"], ["load"], ["serve"]])
)
def test_help_loads_nothing_slow(argv: list[str], home: object, cli: Cli) -> None:
    cli("--help")  # the document's copy is made once, and parsing its YAML needs yaml
    assert not loaded(*argv, "--help") & SLOW


def test_help_of_the_root_converts_no_values(home: object, cli: Cli) -> None:
    cli("--help")
    assert "pydantic" not in loaded("--help")


def test_clients_without_a_document_show_their_shortcuts(folder: Path, cli: Cli) -> None:
    (folder / "cache" / "menagerie" / "shipped.json").unlink()
    SHIPPED.set(None)
    ran = cli("--help")
    assert ran.code == 0, ran.err
    assert " login " in ran.out
    assert "Resources" not in ran.out


@pytest.mark.parametrize("argv", SHORTCUTS, ids=" ".join)
def test_every_shortcut_has_an_example(argv: list[str], folder: object, cli: Cli) -> None:
    ran = cli(*argv, "-h")
    assert ran.code == 0, ran.err
    assert f"Example: menagerie {' '.join(argv)}" in ran.out
    assert "`Example" not in ran.out


@pytest.fixture
def with_server(folder: object) -> Iterator[None]:
    """The server's commands stand beside the client's."""
    registered = list(app.registered_commands)
    commands.register(app)
    yield
    app.registered_commands[:] = registered


@pytest.mark.usefixtures("with_server")
def test_every_command_of_the_server_has_an_example(cli: Cli) -> None:
    for command in commands.COMMANDS:
        name = command.__name__.replace("_", "-")
        ran = cli(name, "--help")
        assert ran.code == 0, ran.err
        assert "Example" in ran.out
        assert f"menagerie {name}" in ran.out


@pytest.mark.parametrize("argv", [["-h"], ["instances", "-h"], ["instances", "pause", "-h"]])
def test_h_is_help_at_every_level(argv: list[str], folder: object, cli: Cli) -> None:
    assert cli(*argv).out == cli(*argv[:-1], "--help").out
    assert "Usage: menagerie" in cli(*argv).out


def test_the_version(folder: object, cli: Cli) -> None:
    ran = cli("--version")
    assert (ran.code, ran.out.split()[0]) == (0, "menagerie")
    assert ran.out.split()[1][0].isdigit()


@pytest.mark.parametrize(
    ("argv", "meant"),
    [
        (["instance", "list"], "instances"),
        (["qeury", "sales", "SELECT 1"], "query"),
        (["instances", "creat"], "create"),
        (["profiles", "lst"], "list"),
        (["instances", "create", "--engin", "duckdb"], "--engine"),
        (["credentials", "sales", "--rotat"], "--rotate"),
        (["--versoin"], "--version"),
    ],
)
def test_what_is_misspelt_is_answered_with_what_was_meant(
    argv: list[str], meant: str, home: object, cli: Cli
) -> None:
    ran = cli(*argv)
    assert ran.code == 2
    assert "did you mean" in ran.err
    assert meant in ran.err.partition("did you mean")[2]


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (["billing", "--help"], ["credit-note  Correct an invoice", "run          Make the"]),
        (["billing"], ["show         List the invoices of a month"]),
        (["credits", "--help"], ["list  List credits", "grant  Grant an organization a credit"]),
        (["programmes", "-h"], ["apply              Apply for", "approve  Approve an application"]),
    ],
)
@pytest.mark.usefixtures("with_server")
def test_the_servers_commands_of_a_word_are_listed(
    argv: list[str], shown: list[str], cli: Cli
) -> None:
    """Beside those of the document, where it has some."""
    ran = cli(*argv)
    told = ran.out + ran.err
    assert [line for line in shown if line not in told] == []


@pytest.mark.usefixtures("with_server")
def test_of_two_words_the_second_can_be_misspelt(cli: Cli) -> None:
    ran = cli("billing", "payy")
    assert (ran.code, "there is no command payy; did you mean pay?" in ran.err) == (2, True)


@pytest.mark.parametrize(
    "argv",
    [
        ["-o", "json", "instances", "list"],
        ["--output=json", "instances", "list"],
        ["instances", "-o", "json", "list"],
        ["instances", "list", "-o", "json"],
        ["-o", "table", "instances", "list", "-o", "json"],
    ],
    ids=" ".join,
)
def test_output_is_chosen_anywhere(
    argv: list[str], home: object, plane: ControlPlane, cli: Cli
) -> None:
    plane.world.add("sales")
    ran = cli(*argv)
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["items"][0]["name"] == "sales"
    # It is said for one command only.
    assert not cli("instances", "list").out.startswith("{")


def test_rows_and_other_answers_have_formats_of_their_own(
    home: object, plane: ControlPlane, cli: Cli
) -> None:
    plane.world.add("sales")
    assert cli("-o", "csv", "query", "sales", "SELECT 42 AS n").out == "n\r\n42\r\n"
    ran = cli("-o", "yaml", "query", "sales", "SELECT 42 AS n")
    assert (ran.code, "table, json or csv" in ran.err) == (2, True)
    ran = cli("-o", "csv", "instances", "list")
    assert (ran.code, "table, json or yaml" in ran.err) == (2, True)


def test_the_profile_may_stand_before_the_command(
    home: object, plane: ControlPlane, cli: Cli
) -> None:
    cli("profiles", "set", "work", f"base_url={plane.base_url}", "api_key=mk_live_of_work")
    assert cli("--profile", "work", "engines", "list").code == 0
    assert plane.asked("GET", "/engines")[-1].token in {"Bearer mk_live_of_work", None}
    ran = cli("--profile", "nosuch", "instances", "list")
    assert (ran.code, "nosuch" in ran.err) == (2, True)


def test_a_command_of_a_room_above_is_suggested_too(folder: object, cli: Cli) -> None:
    registered = list(app.registered_commands)

    @app.command(name="brew")
    def brew() -> None:
        """Make tea."""
        typer.echo("tea")

    try:
        assert "brew" in cli("berw").err
    finally:
        app.registered_commands[:] = registered


@pytest.mark.parametrize(
    ("argv", "usage", "not_said"),
    [
        (["query"], "query [OPTIONS] INSTANCE STATEMENT", "<"),
        (["dump"], "dump [OPTIONS] INSTANCE [FILE]", "<"),
        (["profiles", "set"], "set [OPTIONS] NAME KEY=VALUE...\n", "<"),
        (["instances", "create"], "create [OPTIONS]\n", " <"),
        (["queues", "send"], "send [OPTIONS] INSTANCE QUEUE\n", "The name of the queue. ID"),
        (["domains", "delete"], "delete [OPTIONS] INSTANCE DOMAIN\n", "Domain, by ID or name"),
        (["sessions", "revoke"], "revoke [OPTIONS] SESSION\n", "or name"),
    ],
)
def test_arguments_are_written_as_manuals_write_them(
    argv: list[str], usage: str, not_said: str, folder: object, cli: Cli
) -> None:
    out = cli(*argv, "--help").out
    assert usage in out
    assert not_said not in out
    if "INSTANCE" in usage:
        assert "INSTANCE" in out.partition("Arguments:")[2]
        assert "Instance, by ID or name." in out


def test_examples_name_things_as_people_do(folder: object, cli: Cli) -> None:
    assert "Example: menagerie network get sales\n" in cli("network", "get", "--help").out
    assert "Example: menagerie queues purge sales orders\n" in cli("queues", "purge", "-h").out


def test_every_option_of_an_operation_is_described(folder: Path) -> None:
    document = DocumentSource(
        "http://nowhere", folder / "cache" / "menagerie", contract.shipped()
    ).at_hand()
    assert not [
        f"{operation.id} {option.flag}"
        for operation in document.operations.values()
        for option in options_of(operation)
        if not first_paragraph(option.field.description)
    ]
