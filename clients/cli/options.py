"""Fields of an operation as typer options and arguments, and what was typed back as values."""

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer

from clients import schemas, wording
from clients.cli import moments
from clients.cli.completing import completer
from clients.cli.failures import option_name
from clients.document import Field, Operation
from clients.names import names_of

# Options that every command may have; a field of the same name gives way by its place's name.
RESERVED: Final = frozenset({
    "--body", "--idempotency-key", "--wait", "--wait-timeout", "--all", "--yes",
    "--output", "--profile", "--org", "--project", "--help",
})  # fmt: skip
# Fields that options of our own stand for.
STOOD_FOR: Final = frozenset({("query", "limit"), ("header", "Idempotency-Key")})
TYPES: Final[dict[str, type]] = {"integer": int, "number": float, "boolean": bool, "string": str}
CONTEXT: Final = {"org_id": "--org", "project_id": "--project"}
CHOICES_SHOWN_MAX: Final = 24
# What a parameter is of, where its name is short; and what examples call it.
WHOLE: Final = {"org": "Organization", "key": "API key"}
NAMED: Final = {
    "org": "acme", "project": "shop", "instance": "sales", "queue": "orders", "key": "ci",
    "domain": "dom_01JD7QK3V8Y2M4N6P8R0S2T4V6", "session": "current",
}  # fmt: skip
FROM_FILE: Final = "`@file` reads it from a file, `-` from stdin"


@dataclass(frozen=True)
class Option:
    """One field as it stands on a command line."""

    field: Field
    operation: Operation

    @property
    def keyword(self) -> str:
        """The name under which typer hands the value over."""
        return re.sub(r"\W", "_", f"{self.field.place}_{self.field.name}").lower()

    @property
    def _noun(self) -> str:
        return self.field.name.removesuffix("_id").removesuffix("_name")

    @cached_property
    def is_positional(self) -> bool:
        """Whether it is the subject: a path parameter that no profile gives, or what is asked."""
        if self.field.place == "query":
            return self.field in self.operation.query_arguments
        return self.field.place == "path" and self.context_flag is None

    @property
    def _is_named(self) -> bool:
        return self.field.place == "path" or self.is_positional

    @cached_property
    def context_flag(self) -> str | None:
        """--org or --project, where the profile may stand in; not for a project's own commands."""
        if self.field.place != "path" or self.field.name not in CONTEXT:
            return None
        is_subject = self.field.name == "project_id" and self.operation.noun == "projects"
        return None if is_subject else CONTEXT[self.field.name]

    @cached_property
    def flag(self) -> str:
        if self.context_flag:
            return self.context_flag
        if self.is_positional:
            return self._noun.upper()
        flag = option_name(self.field.name)
        return f"--{self.field.place}-{flag[2:]}" if flag in RESERVED else flag

    @property
    def is_secret(self) -> bool:
        named = self.field.name.endswith("password") and self.field.place == "body"
        return named or self.field.schema.get("format") == "password"

    @cached_property
    def is_nullable(self) -> bool:
        return bool(self.field.schema.get("nullable")) and self.field.place == "body"

    def parameters(self) -> list[Parameter]:
        """Answer the parameters of the command's function that stand for it, for typer to read."""
        return [self._parameter(), *([self._clearing()] if self.is_nullable else [])]

    @property
    def clearing(self) -> str:
        """The name under which typer hands over whether it is to be cleared."""
        return f"clear_{self.keyword}"

    def _clearing(self) -> Parameter:
        info = typer.Option(
            f"--clear-{self.flag[2:]}", help=f"Set {self.flag} to null.", show_default=False
        )
        kind = Parameter.KEYWORD_ONLY
        return Parameter(self.clearing, kind, default=False, annotation=Annotated[bool, info])

    def _parameter(self) -> Parameter:
        kind = Parameter.KEYWORD_ONLY
        if self.is_positional:
            omittable = not self.field.required or moments.is_omittable(self.operation, self.field)
            info = typer.Argument(
                help=self._help(),
                metavar=self.flag,
                show_default=False,
                autocompletion=self._completer,
            )
            if omittable:
                given = Annotated[str | None, info]
                return Parameter(self.keyword, kind, default=None, annotation=given)
            return Parameter(self.keyword, kind, annotation=Annotated[str, info])
        flags = f"{self.flag}/--no-{self.flag[2:]}" if self._is_flag else self.flag
        bounds: dict[str, Any] = {
            "min": self.field.schema.get("minimum"),
            "max": self.field.schema.get("maximum"),
        }
        ranged = self.field.kind in {"integer", "number"} and not self.is_nullable
        info = typer.Option(
            flags,
            help=self._help(),
            metavar=self._metavar,
            autocompletion=self._completer,
            show_default=False,
            rich_help_panel=self._panel,
            **(bounds if ranged else {}),
        )
        return Parameter(
            self.keyword, kind, default=None, annotation=Annotated[self._type | None, info]
        )

    @property
    def _is_flag(self) -> bool:
        return self.field.kind == "boolean" and not self.is_nullable

    @property
    def _panel(self) -> str:
        if self.context_flag:
            return "Common"
        return "Options"

    @cached_property
    def _type(self) -> Any:
        if self.field.kind == "enum":
            return _one_of([*self._choices, *(["null"] if self.is_nullable else [])])
        if self.field.kind == "array":
            return list[str]
        return str if self.is_nullable else TYPES.get(self.field.kind, str)

    @cached_property
    def _items(self) -> dict[str, Any]:
        return schemas.merge(self.operation.document.raw, self.field.schema.get("items", {}))

    @property
    def _metavar(self) -> str | None:
        """What stands for the value in --help; the values themselves where they are few."""
        if self._is_flag:
            return None
        if self.field.kind == "enum":
            return None if self._is_short else option_name(self.field.name)[2:].upper()
        names = {"integer": "INTEGER", "number": "NUMBER", "json": "JSON"}
        return names.get(self.field.kind, "TEXT")

    @property
    def _is_short(self) -> bool:
        return len("|".join(self._choices)) <= CHOICES_SHOWN_MAX

    @cached_property
    def _choices(self) -> list[str]:
        """What it may be, or each of its items; empty where the document does not say."""
        schema = self._items if self.field.kind == "array" else self.field.schema
        return schemas.choices(schema) if schemas.kind(schema) == "enum" else []

    @property
    def _completer(self) -> Any:
        asked = completer(self.operation, self.field)
        if asked is None:
            return self._complete if self._choices else None
        # Where the server cannot be asked, the document's values are better than none.
        return lambda ctx, incomplete: asked(ctx, incomplete) or self._complete(incomplete)

    def _complete(self, incomplete: str) -> list[str]:
        return [one for one in self._choices if one.startswith(incomplete)]

    @property
    def _described(self) -> str:
        names = names_of(self.operation, self.field) if self._is_named else []
        if not names:
            return first_paragraph(self.field.description)
        noun = WHOLE.get(self._noun, self._noun.capitalize())
        return f"{noun}, by {wording.listed(['ID', *names], 'or')}."

    def _help(self) -> str:
        said = [self._described]
        if self._choices and (self.field.kind == "array" or not self._is_short):
            said.append(f"One of {', '.join(self._choices)}.")
        if self.is_secret:
            said.append(f"Prompted for if omitted; {FROM_FILE}.")
        elif self.field.kind == "json":
            said.append(f"JSON; {FROM_FILE}.")
        elif self.field.kind == "array":
            said.append("Repeatable.")
        if self.is_nullable and self.field.kind != "enum":
            said.append(f"`--clear-{self.flag[2:]}` sets it to null.")
        if self.context_flag:
            said.append("Default: the profile's.")
        elif self.field.schema.get("default") is not None:
            said.append(f"Default: {json.dumps(self.field.schema['default']).strip(chr(34))}.")
        elif self.field.required and not self.is_positional:
            said.append("Required.")
        return " ".join(one for one in said if one)

    def value(self, typed: Any) -> Any:
        """Answer what was typed as the value to send. `null` is None."""
        kind = self.field.kind
        if self.is_nullable and typed == "null":
            return None
        if kind == "array":
            return self._array(typed)
        if kind == "json":
            return parse_json(read_text(typed, self.flag), self.flag)
        if self.is_secret:
            return self._secret(typed)
        if self.is_nullable and kind in {"integer", "number", "boolean"}:
            return parse_json(typed, self.flag)
        is_moment = self.field.schema.get("format") == "date-time"
        return moments.as_instant(typed, self.flag) if is_moment else typed

    def _array(self, typed: list[str]) -> Any:
        if len(typed) == 1 and typed[0].lstrip().startswith("["):
            return parse_json(typed[0], self.flag)
        unknown = [one for one in typed if self._choices and one not in self._choices]
        if unknown:
            said = wording.no_choice(unknown[0], self._choices)
            raise typer.BadParameter(said, param_hint=self.flag)
        if schemas.kind(self._items) in {"enum", "string"}:
            return list(typed)
        return [parse_json(one, self.flag) for one in typed]

    def _secret(self, typed: str) -> str:
        if typed == "-" or typed.startswith("@"):
            return read_text(typed, self.flag).rstrip("\r\n")
        typer.echo(
            f"warning: other programs can see {self.flag} on the command line; use `-` for stdin",
            err=True,
        )
        return typed

    def example(self) -> list[str]:
        """Answer the words that show its use."""
        shown = schemas.example(self.field.schema)
        if self.field.kind == "array" and (shown == [] or not isinstance(shown, list)):
            shown = [schemas.example(self._items)]
        if self.is_positional and self.field.name.endswith("_id"):
            return [NAMED.get(self._noun, self._noun.replace("_", "-"))]
        if self.is_positional:
            return [NAMED.get(self._noun) or as_word(self.field.schema.get("example", self._noun))]
        if self._is_flag:
            return [self.flag if shown is not False else f"--no-{self.flag[2:]}"]
        if self.is_secret:
            return [self.flag, "-"]
        if isinstance(shown, list):
            return [word for one in shown for word in (self.flag, as_word(one))]
        return [self.flag, as_word(shown)]


def options_of(operation: Operation) -> list[Option]:
    """Answer the operation's options: the subject first, then what is required, then the rest."""
    found = [
        Option(field, operation)
        for field in operation.fields
        if (field.place, field.name) not in STOOD_FOR
        or (field.name == "limit" and not operation.is_page)
    ]
    return sorted(
        found,
        key=lambda one: (not one.is_positional, not one.field.required, bool(one.context_flag)),
    )


def _one_of(values: list[str]) -> Any:
    return Literal.__getitem__(tuple(values))


def as_word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def first_paragraph(text: str) -> str:
    return " ".join(text.strip().split("\n\n")[0].split())


def read_text(typed: str, flag: str) -> str:
    """Answer what was typed, or the file or stdin it points to."""
    if typed == "-":
        return sys.stdin.read()
    if not typed.startswith("@"):
        return typed
    try:
        return Path(typed[1:]).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"cannot read {typed[1:]}: {error}", param_hint=flag) from error


def parse_json(text: str, flag: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"must be JSON: {error}", param_hint=flag) from error


def cleared(options: Iterable[Option], typed: Mapping[str, Any]) -> dict[str, None]:
    """Answer the members that are to be null; one cannot be set at the same time."""
    found = [one for one in options if one.is_nullable and typed.get(one.clearing)]
    for one in found:
        if typed[one.keyword] is not None:
            raise typer.BadParameter(
                "cannot be set and cleared at once; leave one of the options out",
                param_hint=one.flag,
            )
    return {one.field.argument: None for one in found}


def missing(options: Iterable[Option], given: Callable[[Option], bool]) -> list[Option]:
    """Answer the required options that were not given."""
    return [
        one
        for one in options
        if one.field.required
        and not one.context_flag
        and not moments.is_omittable(one.operation, one.field)
        and not given(one)
    ]
