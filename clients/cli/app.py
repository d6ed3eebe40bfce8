"""The root of the command line: which commands there are, loaded when they are first needed."""

import importlib
import os
import sys
from functools import cached_property
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand

from clients.cli import command_context, failures, given
from clients.cli.groups import CommandApp, CommandGroup
from clients.cli.operations import BESIDE, NounGroup, OperatorGroup, two_words
from clients.document import Document
from clients.errors import ClientError
from clients.schemas import DocumentError

COMPLETE_VAR: Final = "_MENAGERIE_COMPLETE"
RESOURCES: Final = "Resources"
SHORTCUTS: Final = "Shortcuts"

# Command: the module that holds it (its `app`), and the line --help shows without loading it.
SHORTCUT_MODULES: Final = {
    "demo": ("clients.cli.demo", "Create an instance, query it and delete it, step by step."),
    "query": ("clients.cli.query", "Run one statement on an instance: SQL, or a Redis command."),
    "connect": ("clients.cli.connect", "Open a database client on an instance."),
    "dump": ("clients.cli.dump", "Write the data of an instance to a file."),
    "load": ("clients.cli.load", "Load a dump into a PostgreSQL instance."),
    "migrate": ("clients.cli.migrate", "Migrate data from a file or a server into an instance."),
    "credentials": ("clients.cli.credentials", "Reveal an instance's credentials, or rotate them."),
    "logs": ("clients.cli.logs", "Stream the engine logs of an instance."),
    "login": ("clients.cli.login", "Sign in and save the session in the profile."),
    "logout": ("clients.cli.logout", "End the profile's session."),
    "profiles": ("clients.cli.profiles", "List, choose, change and remove profiles."),
    "completion": ("clients.cli.completion", "Show or install shell completion."),
}
# Another name for a command of the document: its group, its name there, and the line for --help.
ALIASES: Final = {
    "restore": ("backups", "restore", "Restore a backup, or an instance to a point in time."),
}
# These have commands of the document beside their own. No others: a server could put its commands
# in the place of those that change profiles, or be sent what is meant for another server.
DOCUMENTED_TOO: Final = frozenset({"credentials"})


class RootGroup(CommandGroup):
    """Commands registered on `app`, then shortcuts, then one group per noun of the document."""

    @cached_property
    def _at_hand(self) -> Document | None:
        return command_context.document_at_hand([])

    def main(self, *args: Any, **settings: Any) -> Any:
        if COMPLETE_VAR in os.environ:
            from clients.cli import shells  # noqa: PLC0415  slow, and nothing else needs it

            shells.register()
        try:
            return super().main(*args, **settings)
        except failures.UNREADABLE as error:
            if not failures.is_of_clients(error):
                raise
            # A server that answers what none should, or a fault of ours: a line will do for both.
            failures.show_unexpected(error)
            sys.exit(failures.OTHER)
        except OSError as error:
            if not failures.is_of_clients(error):
                raise
            failures.show_of_system(error)
            sys.exit(failures.OTHER)

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]  # noqa: ARG002  typer's signature
        nouns = [name for name in _groups(self._at_hand) if name not in self.commands]
        return sorted({*SHORTCUT_MODULES, *ALIASES, *nouns}) + list(self.commands)

    def get_command(self, ctx: typer.Context, cmd_name: str) -> Any:  # type: ignore[override]  # noqa: ARG002  see above
        if cmd_name in self.commands:
            return self.commands[cmd_name]
        if cmd_name in SHORTCUT_MODULES or cmd_name in ALIASES:
            *_, summary = SHORTCUT_MODULES.get(cmd_name) or ALIASES[cmd_name]
            return TyperCommand(name=cmd_name, help=summary, rich_help_panel=SHORTCUTS)
        return _noun_group(self._at_hand, cmd_name)

    def resolve_command(self, ctx: typer.Context, args: list[str]) -> Any:  # type: ignore[override]
        if args[0] in ALIASES:
            *words, _ = ALIASES[args[0]]
            args = [*words, *args[1:]]
        name = args[0]
        of_two_words = " ".join(args[:2])
        if of_two_words in self.commands:
            return of_two_words, self.commands[of_two_words], args[2:]
        if name in self.commands:
            return super().resolve_command(ctx, args)
        group: CommandGroup | None = None
        if name not in SHORTCUT_MODULES or (name in DOCUMENTED_TOO and len(args) > 1):
            group = self._documented(name, args, completing=ctx.resilient_parsing)
        if name in SHORTCUT_MODULES and (group is None or args[1] not in group.list_commands(ctx)):
            return name, _shortcut(name), args[1:]
        group = group or self._of_two_words(name)
        if group is None:
            return super().resolve_command(ctx, args)
        return name, group, args[1:]

    def _of_two_words(self, first: str) -> CommandGroup | None:
        """Answer those of the server's commands that begin with the word, as a group."""
        found = two_words(self.commands, first)
        return OperatorGroup(first, found) if found else None

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        given.forget()
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        # Read by `given`: an option of typer's would load what converts values, for each command.
        with formatter.section("Options for every command, before or after its name"):
            formatter.write_dl(list(given.HELP))
        super().format_options(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands under headings: what is typed most stands first."""
        panels: dict[str, list[tuple[str, str]]] = {SHORTCUTS: [], RESOURCES: []}
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            panel = getattr(command, "rich_help_panel", None)
            heading = panel if isinstance(panel, str) else SHORTCUTS
            panels.setdefault(heading, []).append((name, command.get_short_help_str(120)))
        # There are no resources where no server was asked and no document shipped.
        for heading, rows in ((heading, rows) for heading, rows in panels.items() if rows):
            with formatter.section(heading):
                formatter.write_dl(sorted(rows))

    def _documented(self, name: str, args: list[str], *, completing: bool) -> NounGroup | None:
        """Answer the group of the document; the server is asked where it may know more."""
        if completing or {"-h", "--help"} & {*args} or (name in SHORTCUT_MODULES):
            return _noun_group(command_context.document_at_hand(args), name)
        group = _noun_group(command_context.current_document(args), name)
        known = group is not None and (len(args) < 2 or args[1] in group.list_commands(None))  # noqa: PLR2004  group and command
        return (
            group
            if known
            else _noun_group(command_context.current_document(args, even_if_fresh=True), name)
        )

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        try:
            return super().invoke(ctx)
        except (ClientError, DocumentError) as error:
            failures.show(error)
            raise typer.Exit(failures.exit_code(error)) from error


def _groups(document: Document | None) -> dict[str, str]:
    # What stands beside may ask an operation of another noun, which an older server has too.
    nouns = {*document.nouns, *BESIDE} if document is not None else ()
    return {noun.replace("_", "-"): noun for noun in nouns}


def _noun_group(document: Document | None, name: str) -> NounGroup | None:
    noun = _groups(document).get(name)
    if document is None or noun is None:
        return None
    return NounGroup(document, noun, name=name, rich_help_panel=RESOURCES)


def _shortcut(name: str) -> Any:
    command = typer.main.get_command(importlib.import_module(SHORTCUT_MODULES[name][0]).app)
    command.name = name
    return command


app = CommandApp(
    name="menagerie",
    cls=RootGroup,
    help="A managed database service that you run yourself.",
    epilog="Example: menagerie instances create --engine postgres --size f0 --name shop --wait",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _show_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version  # noqa: PLC0415  nothing else needs it

        typer.echo(f"menagerie {version('menagerie')}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", callback=_show_version, is_eager=True
        ),
    ] = False,
) -> None:
    """A managed database service that you run yourself."""


def command_names() -> list[str]:
    """Answer the names of all client commands, those of the document included."""
    return sorted({*SHORTCUT_MODULES, *ALIASES, *_groups(command_context.document_at_hand([]))})


def run(argv: list[str]) -> int:
    """Run one command line and answer its exit code."""
    try:
        app(args=argv, prog_name="menagerie")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0
