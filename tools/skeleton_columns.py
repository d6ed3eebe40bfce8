"""The columns of a skeleton's record: each as the record, the migration, the document have it."""

import re
from dataclasses import dataclass
from textwrap import dedent, indent
from typing import Final


class Refused(SystemExit):
    """The skeleton cannot be written; nothing was."""


@dataclass(frozen=True)
class Kind:
    """Its type in the record and in the database, and its value where nobody ever wrote one.

    `schema` is YAML; `example` is YAML and Python alike, but for `true`. `audited` is what the
    audit log says of the value.
    """

    annotation: str
    type: str
    empty: str
    schema: str
    example: str
    audited: str = "{}"


KINDS: Final = {
    "text": Kind("str", "sa.String()", '""', "type: string\nmaxLength: 100\n", '"TODO"'),
    "integer": Kind(
        *("int", "sa.Integer()", "0", "type: integer\nminimum: 0\nmaximum: 1000000\n", "1")
    ),
    "boolean": Kind("bool", "sa.Boolean()", "False", "type: boolean\n", "true"),
    "map": Kind(
        *("dict[str, str]", "Json", "{}"),
        dedent("""\
            type: object
            maxProperties: 50
            propertyNames:
              type: string
              pattern: '^[a-z0-9_-]{1,63}$'
              x-allowed: '1 to 63 lowercase letters, digits, `-` and `_`'
            additionalProperties: {$ref: 'shared.yaml#/components/schemas/DisplayName'}
            """),
        *('{"todo": "TODO"}', "sorted({})"),
    ),
    "list": Kind(
        *("list[str]", "Json", "[]"),
        "type: array\nmaxItems: 50\nitems: {$ref: 'shared.yaml#/components/schemas/DisplayName'}\n",
        *('["TODO"]', "len({})"),
    ),
}


@dataclass(frozen=True)
class Column:
    name: str
    kind: Kind

    @property
    def in_record(self) -> str:
        json = " = mapped_column(Json)" if self.kind.type == "Json" else ""
        return f"    {self.name}: Mapped[{self.kind.annotation}]{json}\n"

    @property
    def in_migration(self) -> str:
        return f'\n        sa.Column("{self.name}", {self.kind.type}, nullable=False),'

    @property
    def in_schema(self) -> str:
        inner = f"description: 'TODO: say what it is.'\n{self.kind.schema}"
        return f"{self.name}:\n{indent(inner, '  ')}"

    @property
    def set(self) -> str:
        return f'    replaced.{self.name} = values["{self.name}"]\n'

    @property
    def empty(self) -> str:
        return f"{self.name}={self.kind.empty}"

    @property
    def shown(self) -> str:
        return f'"{self.name}": record.{self.name}'

    @property
    def audited(self) -> str:
        value = f'body["{self.name}"]'
        return f'"{self.name}": {self.kind.audited.format(value)}'


UNDECIDED: Final = (Column("todo", KINDS["text"]),)
"""Where the command names none."""


def columns(words: list[str]) -> tuple[Column, ...]:
    """Of `NAME:KIND` each. Raises Refused."""
    found: dict[str, Column] = {}
    for word in words:
        name, _, kind = word.partition(":")
        if re.fullmatch("[a-z][a-z0-9_]*", name) is None or kind not in KINDS:
            raise Refused(f"{word} is not a column; write NAME:KIND, of {', '.join(KINDS)}")
        if name in found or name in {"id", "org_id", "created_at"}:
            raise Refused(f"the record has a column {name} already")
        found[name] = Column(name, KINDS[kind])
    return tuple(found.values()) or UNDECIDED


def types(chosen: tuple[Column, ...]) -> list[str]:
    """Of storage.columns, what records and migrations of these need."""
    return ["Json"] if any(one.kind.type == "Json" for one in chosen) else []


def example(chosen: tuple[Column, ...]) -> str:
    """As YAML, in one line."""
    return "{" + ", ".join(f"{one.name}: {one.kind.example}" for one in chosen) + "}"


def body(chosen: tuple[Column, ...]) -> str:
    """The example as Python writes it."""
    members = (f'"{one.name}": {one.kind.example}' for one in chosen)
    return "{" + ", ".join(members).replace(": true", ": True") + "}"
