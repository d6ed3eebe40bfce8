"""Groups of commands: options before the command, and what a misspelt one may have meant."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, Final

from typer.core import TyperCommand, TyperGroup

from clients import wording
from clients.cli import given
from clients.cli.output import plain

# Help is written as it stands: what draws it in boxes takes as long to load as all the rest.
PLAIN: Final[dict[str, Any]] = {
    "add_completion": False, "rich_markup_mode": None, "pretty_exceptions_enable": False,
}  # fmt: skip


class Command(TyperCommand):
    """A command whose help is a server's words: they must not drive a terminal."""

    def get_help(self, ctx: Any) -> str:
        return plain(super().get_help(ctx))

    def get_usage(self, ctx: Any) -> str:
        return plain(super().get_usage(ctx))


class Group(TyperGroup):
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
        return ctx.fail(f"no such command: {name}{meant(name, self.list_commands(ctx))}")

    def invoke(self, ctx: Any) -> Any:
        with _suggesting():
            return super().invoke(ctx)


@contextmanager
def _suggesting() -> Iterator[None]:
    """Say what a misspelt option may have meant, as for commands; all of it as plain text."""
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
