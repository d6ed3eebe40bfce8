"""Commands made of the document's operations: their options, their help, and what they do."""

import importlib
import inspect
import shlex
import sys
from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer

from clients.cli import confirming, moments, options, output
from clients.cli.arguments import ProfileOption
from clients.cli.command_context import CommandContext, open_context
from clients.cli.confirming import YesOption
from clients.cli.groups import CommandApp, CommandGroup
from clients.cli.options import Option
from clients.cli.output import OutputOption
from clients.document import Document, Operation

# Operations whose commands do more than to send them: by the module that holds the command.
WRITTEN: Final = {
    "backups.download": "clients.cli.download",
    "console.open": "clients.cli.console",
}
# Commands beside those of a noun's operations: by the module that holds each, with its summary.
BESIDE: Final = {
    "events": {"tail": ("clients.cli.tail", "Show events as they happen, a line for each.")},
    "webhooks": {"listen": ("clients.cli.listen", "Forward events to a receiver on your machine.")},
}
COMMON: Final = ("list", "create", "get", "update", "delete")

BodyOption = Annotated[
    str | None,
    typer.Option(
        "--body",
        metavar="JSON",
        help=f"The whole request body as JSON; {options.FROM_FILE}. Other options override it.",
    ),
]
KeyOption = Annotated[
    str | None,
    typer.Option(
        "--idempotency-key",
        help="Idempotency key for the request. Default: a new one.",
        metavar="KEY",
        rich_help_panel="Common",
    ),
]
WaitOption = Annotated[
    bool,
    typer.Option("--wait", help="Wait until the change is complete.", show_default=False),
]
WaitTimeoutOption = Annotated[
    float,
    typer.Option(
        "--wait-timeout",
        help="Maximum time to wait. Default: 300.",
        min=1,
        metavar="SECONDS",
        show_default=False,
    ),
]
AllOption = Annotated[bool, typer.Option("--all", help="Fetch all results.", show_default=False)]
LimitOption = Annotated[
    int | None,
    typer.Option(
        "--limit",
        help="Fetch at most this many results.",
        min=1,
        metavar="COUNT",
    ),
]


class NounGroup(CommandGroup):
    """The commands of one noun; each is built when it is first asked for."""

    def __init__(self, document: Document, noun: str, **settings: Any) -> None:
        super().__init__(
            help=document.describe_noun(noun),
            no_args_is_help=True,
            rich_markup_mode=None,
            **settings,
        )
        self._operations = {
            command_name(one): one for one in sorted(document.nouns.get(noun, ()), key=_place)
        }
        self._beside = BESIDE.get(noun, {})

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002  typer's signature
        return [*self._operations, *self._beside]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write what there is without building each command, which takes a moment."""
        with formatter.section("Commands"):
            rows = [(name, one.summary) for name, one in self._operations.items()]
            formatter.write_dl(rows + [(name, told) for name, (_, told) in self._beside.items()])
        beside = two_words(ctx.find_root().command.commands, ctx.info_name)
        if beside:
            write_commands(formatter, "For the operator of this installation", beside)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002  typer's signature
        if cmd_name in self._beside:
            return by_module(self._beside[cmd_name][0])
        if cmd_name not in self._operations:
            return None
        if cmd_name not in self.commands:
            operation = self._operations[cmd_name]
            written = WRITTEN.get(operation.id)
            self.commands[cmd_name] = by_module(written) if written else build(operation)
        return self.commands[cmd_name]


class OperatorGroup(CommandGroup):
    """The server's commands that begin with one word, where the document has no such noun."""

    def __init__(self, first: str, commands: Mapping[str, Any]) -> None:
        super().__init__(
            name=first,
            commands={**commands},
            help="Commands for the operator of this installation.",
            no_args_is_help=True,
            rich_markup_mode=None,
        )

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002  typer's signature
        write_commands(formatter, "Commands", self.commands)


def write_commands(formatter: Any, heading: str, commands: Mapping[str, Any]) -> None:
    with formatter.section(heading):
        rows = [(name, one.get_short_help_str(120)) for name, one in commands.items()]
        formatter.write_dl(rows)


def two_words(commands: Mapping[str, Any], first: str) -> dict[str, Any]:
    """Answer the commands of two words that begin with this one, by their second word."""
    words = {name: name.partition(" ") for name in sorted(commands)}
    return {words[name][2]: commands[name] for name in words if words[name][:2] == (first, " ")}


def _place(operation: Operation) -> int:
    """Answer where it stands among its noun's commands: the common ones first."""
    return COMMON.index(operation.verb) if operation.verb in COMMON else len(COMMON)


def command_name(operation: Operation) -> str:
    return operation.verb.replace("_", "-").replace(".", "-")


def by_module(name: str) -> Any:
    return typer.main.get_command(importlib.import_module(name).app)


def build(operation: Operation) -> Any:
    """Answer the command for one operation."""
    taken = options.options_of(operation)

    def command(**values: Any) -> None:
        execute(operation, taken, values)

    extra = {name: note for name, note in _extras(operation).items() if note is not None}
    parameters = [made for one in taken for made in one.parameters()]
    for name, (annotation, default) in extra.items():
        kind = inspect.Parameter.KEYWORD_ONLY
        parameters.append(inspect.Parameter(name, kind, default=default, annotation=annotation))
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    app = CommandApp()
    app.command(
        command_name(operation), help=help_text(operation),
        short_help=operation.summary,
        epilog=f"\b\nExample: {example(operation, taken)}", deprecated=operation.deprecated,
        no_args_is_help=False,
    )(command)  # fmt: skip
    return typer.main.get_command(app)


def _extras(operation: Operation) -> dict[str, Any]:
    with_body = operation.body_type is not None
    return {
        "body": (BodyOption, None) if with_body else None,
        "wait": (WaitOption, False) if operation.can_be_waited_for else None,
        "wait_timeout": (WaitTimeoutOption, 300.0) if operation.can_be_waited_for else None,
        "every_page": (AllOption, False) if operation.is_page else None,
        "limit": (LimitOption, None) if operation.is_page else None,
        "yes": (YesOption, False) if operation.loss else None,
        "idempotency_key": (KeyOption, None) if operation.is_replayable else None,
        "output": (OutputOption, None),
        "profile": (ProfileOption, None),
    }


def help_text(operation: Operation) -> str:
    said = [operation.summary.rstrip(".") + ".", operation.description]
    permission = operation.policy.get("permission")
    if permission not in {None, "none", "self"}:
        said.append(
            f"Needs the permission `{permission}`"
            + (", and a user session: `menagerie login`." if operation.needs_session else ".")
        )
    assurance = operation.policy.get("assurance", "none")
    if assurance == "mfa":
        said.append("Needs the second factor: `menagerie login --step-up`.")
    elif assurance != "none":
        said.append(
            "Needs the second factor if you have enrolled one: `menagerie login --step-up`."
        )
    # In one line, to be found and copied, however long it is.
    said.append(f"\b\n`{operation.method} {operation.path}`")
    return "\n\n".join(one for one in said if one)


def example(operation: Operation, taken: list[Option]) -> str:
    """Answer a command line that works: subject, what is required, what the document shows."""
    words = ["menagerie", operation.noun.replace("_", "-"), command_name(operation)]
    shown = operation.body_example if isinstance(operation.body_example, Mapping) else {}
    for one in taken:
        in_example = one.field.place == "body" and one.field.name in shown
        if one.is_positional or in_example or (one.field.required and not one.context_flag):
            words += one.example()
    if operation.can_be_waited_for and operation.method != "GET":
        words.append("--wait")
    return shlex.join(words)


def execute(operation: Operation, taken: list[Option], values: Mapping[str, Any]) -> None:
    """Run the operation with what was typed, and show its answer."""
    if operation.loss:
        confirming.require_answerable(_spoken(operation), yes=values["yes"])
    context = open_context(values["profile"])
    body = values.get("body")
    if body is not None:
        body = options.parse_json(options.read_text(body, "--body"), "--body")
    typed = dict(values)
    _ask_for_secrets(taken, typed, body)
    arguments = {
        one.field.argument: one.value(typed[one.keyword])
        for one in taken
        if typed[one.keyword] is not None
    } | options.cleared(taken, typed)
    lacking = options.missing(
        taken, lambda one: one.field.argument in arguments or _in_body(one, body)
    )
    if lacking:
        raise typer.BadParameter("is required", param_hint=", ".join(one.flag for one in lacking))
    name = _subject(operation, taken, arguments, context)
    _name_to_id(context, operation, taken, arguments, body)
    if operation.loss:
        confirming.ask(name, operation.loss, yes=values["yes"])
    from clients.cli import sending  # noqa: PLC0415  HTTP is slow to import, and --help needs none

    with context.client:
        if operation.is_stream:
            sending.follow(context.client, operation, arguments)
            return
        answer = sending.send(context.client, operation, arguments, body, values)
    output.show(answer, values["output"])
    if answer is None:
        typer.echo(output.plain(f"{operation.id}: done"), err=True)
    elif operation.loss and isinstance(answer, Mapping) and answer.get("purge_after"):
        typer.echo(output.plain(_kept(operation, name, str(answer["purge_after"]))), err=True)


def _spoken(operation: Operation) -> str:
    return f"{operation.noun.replace('_', '-')} {command_name(operation)}"


def _subject(
    operation: Operation, taken: list[Option], arguments: Mapping[str, Any], context: CommandContext
) -> str:
    """Answer what the command is about, as it was typed: the last thing that its path names."""
    for field in reversed(operation.at("path")):
        option = next(one for one in taken if one.field is field)
        known = {"org_id": context.org_id, "project_id": context.profile.project_id}
        return str(arguments.get(field.argument) or known.get(field.name) or option.flag)
    return command_name(operation)


def _kept(operation: Operation, name: str, until: str) -> str:
    """Answer until when what was deleted is kept, and how to have it back."""
    said = f"its data is kept until {output.cell('purge_after', until)}"
    if f"{operation.noun}.undelete" not in operation.document.operations:
        return said
    line = shlex.join(["menagerie", operation.noun.replace("_", "-"), "undelete", name])
    return f"{said}; until then, `{line}` restores it"


def _in_body(option: Option, body: Any) -> bool:
    if option.field.place != "body" or body is None:
        return False
    return not isinstance(body, Mapping) or option.field.name in body


def _ask_for_secrets(taken: list[Option], typed: dict[str, Any], body: Any) -> None:
    for one in taken:
        wanted = one.is_secret and one.field.required and not _in_body(one, body)
        if wanted and typed[one.keyword] is None and sys.stdin.isatty():
            from getpass import getpass  # noqa: PLC0415  only where a secret is asked for

            typed[one.keyword] = getpass(output.plain(f"{one.field.name}: "))


def _name_to_id(
    context: CommandContext,
    operation: Operation,
    taken: list[Option],
    arguments: dict[str, Any],
    body: Any,
) -> None:
    """Put ids in the place of names, from the org down: each is looked up in the one above."""
    for field in operation.at("path"):
        option = next(one for one in taken if one.field is field)
        if field.argument not in arguments and moments.is_omittable(operation, field):
            arguments[field.argument] = moments.chosen_backup(context, operation, arguments, body)
            continue
        if field.argument not in arguments and option.context_flag:
            known = context.org_id if field.name == "org_id" else context.profile.project_id
            if known is None:
                raise typer.BadParameter(
                    "is missing: add the option, or set it in the profile",
                    param_hint=option.flag,
                )
            arguments[field.argument] = known
        arguments[field.argument] = context.identify(
            operation, field, str(arguments[field.argument]), arguments
        )
    for field in operation.query_arguments:
        if field.argument in arguments:
            arguments[field.argument] = context.identify(
                operation, field, str(arguments[field.argument]), arguments
            )
