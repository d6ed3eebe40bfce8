"""Groups and commands: plain help, and what a misspelled command or option may have meant."""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from clients import wording
from clients.cli import given
from clients.cli.output import plain

# Help is written as it stands: what draws it in boxes takes as long to load as all the rest.
PLAIN: Final[dict[str, Any]] = {
    "add_completion": False, "rich_markup_mode": None, "pretty_exceptions_enable": False,
}  # fmt: skip


# How help names Python's types, as other command lines do.
TYPES: Final = {"str": "TEXT", "int": "INTEGER", "float": "NUMBER", "path": "PATH"}
TYPE: Final = re.compile(r"<(?:list\[)?([^<>\[\]]+?)(?: range)?\]?>$")


class Command(TyperCommand):
    """A command whose help may be a server's words: they must not drive a terminal."""

    def get_help(self, ctx: Any) -> str:
        return plain(super().get_help(ctx))

    def get_usage(self, ctx: Any) -> str:
        return plain(super().get_usage(ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        arguments = [one for one in self.get_params(ctx) if one.param_type_name == "argument"]
        return ["[OPTIONS]", *(_usage(one) for one in arguments)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        for kind, heading in (("argument", "Arguments"), ("option", "Options")):
            shown = [one for one in self.get_params(ctx) if one.param_type_name == kind]
            rows = [row for row in (_row(one, ctx) for one in shown) if row is not None]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)


def _usage(argument: Any) -> str:
    """Answer the argument as manuals write it: in brackets where it can be left out."""
    name = argument.display_name_raw + ("" if argument.nargs == 1 else "...")
    return name if argument.required else f"[{name}]"


def _row(param: Any, ctx: Any) -> tuple[str, str] | None:
    """Answer a line of the help; an argument's name says enough, so that its type is not shown."""
    row = param.get_help_record(ctx)
    if row is None:
        return None
    name, said = row
    if param.param_type_name == "argument":
        return param.display_name_raw, said
    return TYPE.sub(lambda found: _type(found[1]), name), said


def _type(name: str) -> str:
    return f"[{name}]" if "|" in name else TYPES.get(name, name.upper())


class CommandApp(typer.Typer):
    """A set of commands whose help is plain."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{**PLAIN, **settings})

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Any], Any]:
        return super().command(name, **{"cls": Command, **settings})


class CommandGroup(TyperGroup):
    """A group that takes common options in front, and knows its commands by nearly their names."""

    def get_help(self, ctx: Any) -> str:
        return plain(super().get_help(ctx))

    def get_usage(self, ctx: Any) -> str:
        return plain(super().get_usage(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with _suggesting():
            return super().parse_args(ctx, given.take(args))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0]
        if ctx.resilient_parsing or name.startswith("-") or self.get_command(ctx, name):
            return super().resolve_command(ctx, args)
        return ctx.fail(f"there is no command {name}{meant(name, self.list_commands(ctx))}")

    def invoke(self, ctx: Any) -> Any:
        with _suggesting():
            return super().invoke(ctx)


@contextmanager
def _suggesting() -> Iterator[None]:
    """Say what a misspelled option may have meant, as for commands; all of it as plain text."""
    try:
        yield
    except Exception as error:
        near = getattr(error, "possibilities", None)
        if near:
            error.message += f"; did you mean {wording.listed(near, 'or')}?"  # type: ignore[attr-defined]  # a NoSuchOption
            error.possibilities = None  # type: ignore[attr-defined]  # see above
        words = _words(error)
        if words:
            error.message = words  # type: ignore[attr-defined]  # a BadParameter
        told = getattr(error, "format_message", None)
        if told is not None:  # it names values and options, which the document has
            said = plain(told())
            error.format_message = lambda: said  # type: ignore[attr-defined]  # a ClickException
        raise


def _words(error: Any) -> str:
    """What to say of a value that typer refused; empty where its own words will do."""
    found = getattr(error.__cause__, "errors", None)
    if found is None:
        return ""
    first = found()[0]
    described = getattr(getattr(error, "param", None), "type_descriptor", None)
    choices = described.choices if described is not None else None
    if choices and isinstance(first.get("input"), str):
        return wording.no_choice(first["input"], map(str, choices))
    return wording.refusal(first)


def meant(typed: str, known: Iterable[str]) -> str:
    """Answer the end of a message: which of those that are known may have been meant."""
    found = get_close_matches(typed, list(known), n=3)
    return f"; did you mean {wording.listed(found, 'or')}?" if found else ""
