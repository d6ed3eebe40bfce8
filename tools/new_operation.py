"""Writes the skeleton of an operation: `python -m tools.new_operation NOUN.VERB METHOD PATH`.

What is left to write says TODO, and `make check` fails until none does.
"""

import argparse
import re
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from textwrap import dedent, indent
from typing import Final

from tools.document_rules.operations import needed
from tools.document_rules.reading import Operation, Text

ROOT: Final = Path(__file__).resolve().parents[1]
EXAMPLES: Final = """examples:

  python -m tools.new_operation tags.get GET '/v1/orgs/{org_id}/instances/{instance_id}/tags'

  python -m tools.new_operation tags.replace PUT --record Tag \\
      '/v1/orgs/{org_id}/instances/{instance_id}/tags'
"""
_NAME: Final = re.compile(r"([a-z][a-z0-9_]*)\.([a-z][a-z0-9_]*)")
_PARAMETER: Final = re.compile(r"\{(\w+)\}")
_SUCCESSES: Final = {"POST": "201", "DELETE": "204"}
_BODIES: Final = frozenset({"POST", "PUT", "PATCH"})


class Refused(SystemExit):
    """The skeleton cannot be written; nothing was."""


class Skeleton:
    """One operation to be, in a checkout."""

    def __init__(self, root: Path, name: str, method: str, path: str, permission: str) -> None:
        found = _NAME.fullmatch(name)
        if found is None:
            raise Refused(f"{name} is not an operationId; write noun.verb, as in instances.pause")
        self.root, self.name, self.method, self.path = root, name, method.upper(), path
        self.noun, self.verb = found.groups()
        self.permission = permission or f"{self.noun}:{'read' if self.reads else 'write'}"
        self.document = root / "openapi.yaml"
        text = Text(self.document)
        if any(one.id == name for one in text.operations):
            raise Refused(f"openapi.yaml has an operation {name} already")
        if any((one.path, one.method) == (path, self.method) for one in text.operations):
            raise Refused(f"openapi.yaml has an operation at {self.method} {path} already")
        self.parameters = _references(text, "parameters")
        self.answers = _references(text, "responses")
        self.raw = text.raw
        unknown = [one for one in _PARAMETER.findall(path) if one not in self.parameters]
        if unknown:
            raise Refused(
                f"{unknown[0]} is not a path parameter of openapi.yaml; add it to components/"
                "parameters, with its x-record, and use it in one operation first"
            )

    @property
    def reads(self) -> bool:
        return self.method == "GET"

    @property
    def has_body(self) -> bool:
        return self.method in _BODIES

    @property
    def schema(self) -> str:
        return self.noun.title().replace("_", "")

    def describe(self) -> Path:
        """Write it into openapi.yaml, beside the operations of the same path."""
        lines = self.document.read_text().splitlines()
        self._name_tag(lines)
        block = indent(self._operation(), "    ").splitlines()
        place = f"  {self.path}:"
        if place in lines:
            end = _end_of_path(lines, lines.index(place))
            lines[end:end] = block
        else:
            end = _end_of_path(lines, self._nearest(lines))
            lines[end:end] = ["", place, *block]
        if not self._deletes and self.schema not in self.raw["components"]["schemas"]:
            lines += indent(_SCHEMA.format(schema=self.schema), "    ").splitlines()
        self.document.write_text("\n".join(lines) + "\n")
        return self.document

    @property
    def _deletes(self) -> bool:
        return self.method == "DELETE"

    def _name_tag(self, lines: list[str]) -> None:
        tag = self.noun.replace("_", " ").capitalize()
        if tag.lower() not in {one["name"].lower() for one in self.raw["tags"]}:
            end = lines.index("paths:") - 1
            lines[end:end] = [f"  - name: {tag}", "    description: 'TODO: say what these are.'"]

    def _nearest(self, lines: list[str]) -> int:
        """The last path that begins like this one."""
        paths = [number for number, line in enumerate(lines) if re.match(r"  /\S*:$", line)]

        def alike(number: int) -> int:
            theirs = lines[number].strip(" :").split("/")
            pairs = zip(theirs, self.path.split("/"), strict=False)
            return next((i for i, (one, other) in enumerate(pairs) if one != other), len(theirs))

        return max(paths, key=lambda number: (alike(number), number))

    def _operation(self) -> str:
        names = [self.parameters[one] for one in _PARAMETER.findall(self.path)]
        names += ["IdempotencyKey"] if self.method == "POST" else []
        policy = f"x-authorize: {{permission: '{self.permission}', scope: team}}\n"
        if self.reads:
            policy += "x-audit: none\nx-audit-reason: Reading changes nothing.\n"
        else:
            policy += f"x-audit: {self.noun}.{self.verb}\n"
        if self._deletes:
            policy += "x-confirm: 'TODO: say what is lost, or write none and x-confirm-reason.'\n"
        tag = self.noun.replace("_", " ").capitalize()
        return f"{self.method.lower()}:\n" + indent(
            _WORDS.format(id=self.name, tag=tag)
            + policy
            + "x-rate-limit: default\nx-events: []\n"
            + "parameters:\n"
            + "".join(f"  - {{$ref: '#/components/parameters/{one}'}}\n" for one in names)
            + (_BODY.format(schema=self.schema) if self.has_body else "")
            + f"responses:\n{indent(self._responses(), '  ')}",
            "  ",
        )

    def _responses(self) -> str:
        if self._deletes:
            success = "'204': {$ref: '#/components/responses/NoContent'}\n"
        else:
            status = _SUCCESSES.get(self.method, "200")
            success = _ANSWER.format(status=status, schema=self.schema)
        described = {
            "security": [{}],
            "requestBody": {} if not self.has_body else {"content": {}},
            "parameters": [{"name": one, "in": "path"} for one in _PARAMETER.findall(self.path)],
            "responses": {"200": {"content": {} if self._deletes else {"application/json": {}}}},
        }
        if self.has_body:
            described["requestBody"] = {"content": {"application/json": {}}}
        statuses = sorted(needed(Operation(self.path, self.method, described)))
        return success + "".join(
            f"'{status}': {{$ref: '#/components/responses/{self.answers[status]}'}}\n"
            for status in statuses
        )

    def handle(self) -> Path:
        """Write the handler, in a new module where the tag has none."""
        place = self.root / "handlers" / f"{self.noun}.py"
        records = [one.removesuffix("_id") for one in _PARAMETER.findall(self.path)]
        given = [one for one in records if one != "org"]
        classes = {one: one.title().replace("_", "") for one in given}
        arguments = [f"{one}: {classes[one]}" for one in given]
        arguments += ["body: Body"] if self.has_body else []
        head = _HANDLERS.format(tag=self.noun.replace("_", " "))
        head += "".join(f"from storage.{one}s import {classes[one]}\n" for one in sorted(given))
        text = place.read_text() if place.exists() else f"{head}\nBody = dict[str, Any]\n"
        place.write_text(
            text
            + _HANDLER.format(
                verb=self.verb,
                arguments="".join(f", {one}" for one in arguments),
                answer="Reply" if self._deletes else "Body",
                audit="" if self.reads else "    call.audit(target=TODO, detail={})\n",
            )
        )
        return place

    def test(self) -> Path:
        """Write the test to begin with."""
        place = self.root / "contract_tests" / "api" / f"test_{self.noun}.py"
        text = place.read_text() if place.exists() else _TESTS.format(noun=self.noun)
        place.write_text(text + _TEST.format(verb=self.verb, name=self.name))
        return place

    def record(self, name: str) -> list[Path]:
        """Write the record of a table, and the migration that makes it."""
        place = self.root / "storage" / f"{self.noun}.py"
        if place.exists():
            raise Refused(f"{place.name} is there already: add the record to it")
        place.write_text(_RECORD.format(name=name, table=self.noun))
        moment = f"{datetime.now(UTC):%Y%m%d%H%M}"
        versions = self.root / "storage" / "migrations" / "versions"
        before = max(one.name.partition("_")[0] for one in versions.glob("[0-9]*.py"))
        migration = versions / f"{moment}_{self.noun}.py"
        migration.write_text(
            _MIGRATION.format(name=name, table=self.noun, revision=moment, before=before)
        )
        records = self.root / "storage" / "records.py"
        text = records.read_text().replace(
            "\n__all__ = [\n",
            f'from storage.{self.noun} import {name}\n\n__all__ = [\n    "{name}",\n',
        )
        records.write_text(text)
        return [place, migration, records]

    def log(self) -> Path:
        place = self.root / "CHANGELOG.md"
        text = place.read_text()
        place.write_text(text.replace("### Added\n", f"### Added\n- TODO: {self.name}.\n", 1))
        return place


def _references(text: Text, kind: str) -> dict[str, str]:
    """Names of shared components: of parameters by their names, of responses by their status."""
    components = text.raw["components"][kind]
    if kind == "parameters":
        return {one["name"]: name for name, one in components.items()}
    used: dict[str, Counter[str]] = {}
    for methods in text.raw["paths"].values():
        for described in methods.values():
            answers = described.get("responses", {}) if isinstance(described, dict) else {}
            for status, one in answers.items():
                if "$ref" in one:
                    used.setdefault(str(status), Counter())[one["$ref"].rpartition("/")[2]] += 1
    return {status: names.most_common(1)[0][0] for status, names in used.items()}


def _end_of_path(lines: list[str], start: int) -> int:
    """The line behind the last one of the path that starts there."""
    end = start + 1
    while end < len(lines) and (not lines[end] or lines[end].startswith("   ")):
        end += 1
    while not lines[end - 1]:
        end -= 1
    return end


_WORDS = dedent("""\
    operationId: {id}
    tags: [{tag}]
    summary: 'TODO: say what it does'
    description: |
      TODO: say when to use it and what happens next.
    """)
_BODY = dedent("""\
    requestBody:
      required: true
      content:
        application/json:
          schema: {{$ref: '#/components/schemas/{schema}'}}
          example: {{todo: TODO}}
    """)
_ANSWER = dedent("""\
    '{status}':
      description: 'TODO: say what it shows.'
      headers:
        X-Request-Id: {{$ref: '#/components/headers/RequestId'}}
      content:
        application/json:
          schema: {{$ref: '#/components/schemas/{schema}'}}
          example: {{todo: TODO}}
    """)
_SCHEMA = dedent("""\
    {schema}:
      type: object
      description: 'TODO: say what it is.'
      unevaluatedProperties: false
      required: [todo]
      properties:
        todo: {{type: string, maxLength: 100, description: 'TODO: its members.'}}
    """)
_HANDLERS = '''"""Handlers of the tag {tag}: TODO."""

from typing import Any

from handlers.calls import OrgCall
from specserver import Reply
'''
_HANDLER = """

def {verb}(call: OrgCall{arguments}) -> {answer}:
{audit}    raise NotImplementedError("TODO")
"""
_TESTS = '''"""TODO: what holds for {noun}, in one sentence."""

import pytest

from contract_tests.api.harness import House, Tenant
'''
_TEST = """

def test_{verb}_does_what_its_description_says(house: House, tenant: Tenant) -> None:
    pytest.fail("TODO: {name}: what it answers, each error of its own, its audit entry and event")
"""
_RECORD = '''"""TODO: what a {name} is, and who has it."""

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from storage.columns import Owned, Record


class {name}(Owned, Record):
    __tablename__ = "{table}"

    id: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"), index=True)
'''
_MIGRATION = '''"""TODO: what a {name} is."""

import sqlalchemy as sa
from alembic import op

from storage.columns import Timestamp

revision = "{revision}"
down_revision = "{before}"


def upgrade() -> None:
    op.create_table(
        "{table}",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.ForeignKeyConstraint(["org_id"], ["organizations.id"], name="fk_{table}_org_id"),
        sa.PrimaryKeyConstraint("id", name="pk_{table}"),
    )
    op.create_index("ix_{table}_org_id", "{table}", ["org_id"])


def downgrade() -> None:
    op.drop_table("{table}")
'''


def main(words: list[str], root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.new_operation",
        description="Write the skeleton of an operation; what is left to write says TODO.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", metavar="NOUN.VERB", help="the operationId")
    parser.add_argument("method", choices=["GET", "POST", "PUT", "PATCH", "DELETE"])
    parser.add_argument("path", help="with the parameters that openapi.yaml knows")
    parser.add_argument("--permission", default="", help="[NOUN:read or NOUN:write]")
    parser.add_argument("--record", metavar="NAME", help="a table of its own, with this record")
    given = parser.parse_args(words)
    skeleton = Skeleton(root, given.name, given.method, given.path, given.permission)
    written = skeleton.record(given.record) if given.record else []
    written += [skeleton.describe(), skeleton.handle(), skeleton.test(), skeleton.log()]
    print(
        "written; search for TODO in:", *(f"  {one.relative_to(root)}" for one in written), sep="\n"
    )
    print("then: make fix check, and docs/adding-an-operation.md for what each part needs")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
