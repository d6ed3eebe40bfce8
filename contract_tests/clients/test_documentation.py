"""docs/cli.md is held to the command line: what it shows exists, and what exists it names."""

import re
import shlex

import pytest
import typer

from clients import errors
from clients.cli import app, command_names, failures
from clients.cli.app import ALIASES, SHORTCUT_MODULES
from clients.cli.output import Format
from clients.profiles import VARIABLES
from contract_tests.clients.conftest import Cli
from contract_tests.clients.stand_in import ROOT

PAGE = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
SERVER_COMMANDS = {"serve"}


def shown() -> list[str]:
    """Every command line of the page: those set apart, and those in its sentences."""
    set_apart = re.findall(r"^    (menagerie [^|#\n]*)", PAGE, re.MULTILINE)
    in_sentences = re.findall(r"`(menagerie [^`]*)`", PAGE)
    return sorted({line.strip() for line in [*set_apart, *in_sentences]})


def words(line: str) -> list[str]:
    return shlex.split(line.replace("…", ""))[1:]


@pytest.mark.parametrize("line", shown())
def test_each_documented_command_exists_with_its_options(
    line: str, folder: object, cli: Cli
) -> None:
    argv = words(line)
    if argv[0] in SERVER_COMMANDS or argv[0].startswith("-"):
        return
    nested = argv[0] not in {*SHORTCUT_MODULES, *ALIASES} or argv[0] in {"profiles", "completion"}
    named = argv[:2] if nested or argv[1:2] in (["reveal"], ["rotate"]) else argv[:1]
    help_page = cli(*[one for one in named if not one.startswith("-")], "--help")
    assert help_page.code == 0, help_page.err
    for flag in [one.partition("=")[0] for one in argv if re.match(r"--?[a-z]", one)]:
        assert flag in help_page.out, f"{line}: no {flag}"


def test_every_shortcut_is_documented() -> None:
    shortcuts = {*SHORTCUT_MODULES, *ALIASES}
    assert not [name for name in shortcuts if f"menagerie {name}" not in PAGE]
    assert shortcuts < set(command_names())


def test_every_variable_and_profile_key_is_documented() -> None:
    for key, variable in VARIABLES.items():
        assert f"| `{key}` | `{variable}` |" in PAGE


def test_every_exit_code_and_format_is_documented() -> None:
    codes = {failures.exit_code(errors.problem(status, {})) for status in range(400, 600)}
    for code in codes:
        assert re.search(rf"^\| {code} \|", PAGE, re.MULTILINE)
    for form in Format:
        assert form in PAGE


def test_a_room_above_may_add_commands_of_its_own(
    folder: object, capsys: pytest.CaptureFixture[str]
) -> None:
    registered = list(app.registered_commands)

    @app.command(name="brew", rich_help_panel="Server")
    def brew() -> None:
        """Make tea."""
        typer.echo("tea")

    try:
        with pytest.raises(SystemExit) as ended:
            app(["brew"])
        assert ended.value.code == 0
        with pytest.raises(SystemExit):
            app(["--help"])
        out = capsys.readouterr().out
        assert out.startswith("tea\n")
        assert "Make tea." in out
        assert "instances" in out
    finally:
        app.registered_commands[:] = registered
