"""Writes the skeleton of an operation: `python -m tools.new_operation NOUN.VERB METHOD PATH`.

What is left to write says TODO, and `make check` fails until none does.
"""

import argparse
import re
import sys
from keyword import iskeyword
from pathlib import Path
from textwrap import indent
from typing import Any, Final

from control.policy.permissions import CATALOGUE
from specserver import written
from tools import skeleton_code, skeleton_columns, skeleton_texts
from tools.document_rules.layout import GROUPS, area_of
from tools.skeleton_code import PARAMETER
from tools.skeleton_columns import Column, Refused
from tools.skeleton_records import RecordSkeleton

ROOT: Final = Path(__file__).resolve().parents[1]
EXAMPLES: Final = """examples:

  python -m tools.new_operation notes.get GET '/v1/orgs/{org_id}/instances/{instance_id}/notes'

  python -m tools.new_operation notes.replace PUT --record Note --column text:text \\
      '/v1/orgs/{org_id}/instances/{instance_id}/notes'

The second also makes notes.get, a GET of the same path, where there is none yet.
"""
_NAME: Final = re.compile(r"([a-z][a-z0-9_]*)\.([a-z][a-z0-9_]*)")
_SUCCESSES: Final = {"POST": "201", "DELETE": "204"}
# As elsewhere in the house; one without operations has no file yet.
_AREAS: Final = (
    *("access", "billing", "catalogue", "data", "events", "growth", "instances", "network"),
)
_BODIES: Final = frozenset({"POST", "PUT", "PATCH"})


class Skeleton:
    """One operation to be, in a checkout."""

    def __init__(
        self, root: Path, name: str, method: str, path: str, permission: str, area: str
    ) -> None:
        found = _NAME.fullmatch(name)
        if found is None:
            raise Refused(f"{name} is not an operationId; write noun.verb, as in instances.pause")
        self.root, self.name, self.method, self.path = root, name, method.upper(), path
        self.noun, self.verb = found.groups()
        if iskeyword(self.verb) or iskeyword(self.noun):
            raise Refused(f"{name} has a word of Python, which no function can be called by")
        self.owned: RecordSkeleton | None = None
        named = [one.removesuffix("_id") for one in PARAMETER.findall(path)]
        self.records = [one for one in named if one != "org"]
        self.permission = permission or self._permission()
        self.document = root / "openapi.yaml"
        whole = written.read(self.document)
        self.known = {
            (path, method.upper()): operation["operationId"]
            for path, item in whole["paths"].items()
            for method, operation in item.items()
        }
        if name in self.known.values():
            raise Refused(f"openapi.yaml has an operation {name} already")
        if (path, self.method) in self.known:
            raise Refused(f"openapi.yaml has an operation at {self.method} {path} already")
        self._load()
        self.parameters = {
            one["name"]: name for name, one in whole["components"]["parameters"].items()
        }
        unknown = [one for one in PARAMETER.findall(path) if one not in self.parameters]
        if unknown:
            raise Refused(
                f"{unknown[0]} is not a path parameter of openapi.yaml; add it to components/"
                "parameters of openapi/shared.yaml, with its x-record, and use it in one operation"
                " first"
            )
        self.area = self._area(area)

    def _load(self) -> None:
        """Each file of the document as it now is."""
        folder = self.document.with_suffix("")
        files = [self.document, *sorted(folder.glob("*.yaml"))]
        self.files = {one: written.load(one) for one in files}

    def getting(self) -> "Skeleton | None":
        """The GET of what a PUT replaces, where there is none yet."""
        name = f"{self.noun}.get"
        if (self.path, "GET") in self.known or name in self.known.values():
            return None
        permission = self.permission.replace(":write", ":read")
        permission = permission if permission in CATALOGUE else ""
        return Skeleton(self.root, name, "GET", self.path, permission, self.area.stem)

    def _permission(self) -> str:
        """That of its noun, or else of the record that the path names."""
        act = "read" if self.reads else "write"
        nouns = [self.noun, f"{self.records[-1]}s"] if self.records else [self.noun]
        likely = [f"{noun.replace('_', '-')}:{act}" for noun in nouns]
        return next((one for one in likely if one in CATALOGUE), likely[0])

    @property
    def reads(self) -> bool:
        return self.method == "GET"

    @property
    def has_body(self) -> bool:
        return self.method in _BODIES

    @property
    def schema(self) -> str:
        return self.noun.title().replace("_", "")

    @property
    def tag(self) -> str:
        """As the root writes it, if it has it."""
        meant = self.noun.replace("_", " ").capitalize()
        known = {one["name"].lower(): one["name"] for one in self.files[self.document]["tags"]}
        return str(known.get(meant.lower(), meant))

    def _area(self, given: str) -> Path:
        """The file of its tag; for a new tag the one that was asked for, or of the path alike."""
        root = self.files[self.document]
        area = area_of(root, self.tag) or given
        if given not in ("", area):
            raise Refused(f"the tag {self.tag} is of {area}: leave out --area, or move the tag")
        folder = self.document.with_suffix("")
        if not area:
            lines = self.document.read_text().splitlines()
            reference = root["paths"][lines[self._nearest(lines)].strip(" :")]["$ref"]
            area = Path(reference.partition("#")[0]).stem
        if area not in _AREAS:
            raise Refused(f"{area} is not an area; choose one of {', '.join(_AREAS)}")
        return folder / f"{area}.yaml"

    def describe(self) -> list[Path]:
        """Write it into the file of its area, beside others of its path, and name it in the root.

        The root names a path once, whatever its methods. What reads comes before what changes.
        """
        self._load()
        lines = [skeleton_texts.AREA_HEAD]
        if self.area in self.files:
            lines = self.area.read_text().splitlines()
        if "paths:" not in lines:
            lines[1:1] = ["paths:", ""]
        block = indent(self._operation(), "    ").splitlines()
        place = f"  {self.path}:"
        if place in lines:
            start = lines.index(place)
            end = start + 1 if self.reads else _end_of_path(lines, start)
            lines[end:end] = block
        else:
            end = _end_of_path(lines, self._nearest(lines))
            lines[end:end] = ["", place, *block]
        there = any(self.schema in one["components"]["schemas"] for one in self._with_schemas())
        if not self._deletes and not there:
            lines += [] if "components:" in lines else ["", "components:", "  schemas:"]
            lines += indent(self._schema(), "    ").splitlines()
        self.area.write_text("\n".join(lines) + "\n")
        self._name_in_root(place)
        return [self.document, self.area]

    def _with_schemas(self) -> list[dict[str, Any]]:
        return [one for one in self.files.values() if "schemas" in one.get("components", {})]

    @property
    def _columns(self) -> tuple[Column, ...]:
        return self.owned.columns if self.owned else skeleton_columns.UNDECIDED

    def _schema(self) -> str:
        required = ", ".join(one.name for one in self._columns)
        members = "".join(one.in_schema for one in self._columns)
        head = skeleton_texts.SCHEMA.format(schema=self.schema, required=required)
        return head + indent(members, "    ")

    def _name_in_root(self, place: str) -> None:
        lines = self.document.read_text().splitlines()
        self._name_tag(lines)
        if place not in lines:
            end = _end_of_path(lines, self._nearest(lines))
            pointer = self.path.replace("~", "~0").replace("/", "~1")
            lines[end:end] = [place, f"    $ref: 'openapi/{self.area.name}#/paths/{pointer}'"]
        self.document.write_text("\n".join(lines) + "\n")

    def _reference(self, kind: str, name: str) -> str:
        """To a component, from the file of the area; a schema not there yet will be in it."""
        found = (
            path for path, one in self.files.items() if name in one["components"].get(kind, {})
        )
        home = next(found, self.area)
        file = "" if home == self.area else home.name
        return f"{{$ref: '{file}#/components/{kind}/{name}'}}"

    @property
    def _deletes(self) -> bool:
        return self.method == "DELETE"

    def _name_tag(self, lines: list[str]) -> None:
        if self.tag in {one["name"] for one in self.files[self.document]["tags"]}:
            return
        end = lines.index("", lines.index("tags:"))
        lines[end:end] = [f"  - name: {self.tag}", "    description: 'TODO: say what these are.'"]
        group = f"  - {{name: {self.area.stem.capitalize()}, tags: ["
        numbers = [number for number, line in enumerate(lines) if line.startswith(group)]
        if numbers:
            lines[numbers[0]] = lines[numbers[0]].replace("]}", f", {self.tag}]}}")
        else:
            end = lines.index("", lines.index(f"{GROUPS}:"))
            lines[end:end] = [f"{group}{self.tag}]}}"]

    def _nearest(self, lines: list[str]) -> int:
        """The last path that begins like this one; where there is none, the line above them."""
        paths = [number for number, line in enumerate(lines) if re.match(r"  /\S*:$", line)]

        def alike(number: int) -> int:
            theirs = lines[number].strip(" :").split("/")
            pairs = zip(theirs, self.path.split("/"), strict=False)
            return next((i for i, (one, other) in enumerate(pairs) if one != other), len(theirs))

        above = lines.index("paths:")
        return max(paths, key=lambda number: (alike(number), number), default=above)

    def _operation(self) -> str:
        names = [self.parameters[one] for one in PARAMETER.findall(self.path)]
        names += ["IdempotencyKey"] if self.method == "POST" else []
        schema = self._reference("schemas", self.schema)
        policy = f"x-authorize: {{permission: '{self.permission}', scope: team}}\n"
        if self.reads:
            policy += "x-audit: none\nx-audit-reason: Reading changes nothing.\n"
        else:
            policy += f"x-audit: {self.noun}.{self.verb}\n"
        if self._deletes:
            policy += "x-confirm: 'TODO: say what is lost, or write none and x-confirm-reason.'\n"
        example = skeleton_columns.example(self._columns)
        body = skeleton_texts.BODY.format(schema=schema, example=example) if self.has_body else ""
        decided = self.owned and self.owned.parent == "instance" and not self.reads
        return f"{self.method.lower()}:\n" + indent(
            skeleton_texts.WORDS.format(id=self.name, tag=self.tag)
            + (skeleton_texts.FATE_WORDS if decided else "")
            + policy
            + "x-rate-limit: default\nx-events: []\n"
            + "parameters:\n"
            + "".join(f"  - {self._reference('parameters', one)}\n" for one in names)
            + body
            + f"responses:\n{indent(self._success(schema), '  ')}",
            "  ",
        )

    def _success(self, schema: str) -> str:
        """What it answers of its own; the standard answers follow from the rest."""
        if self._deletes:
            return f"'204': {self._reference('responses', 'NoContent')}\n"
        return skeleton_texts.ANSWER.format(
            status=_SUCCESSES.get(self.method, "200"),
            schema=schema,
            example=skeleton_columns.example(self._columns),
        )

    def import_of(self, record: str) -> str:
        """The line by which a module gets the record."""
        text = (self.root / "storage" / "records.py").read_text()
        found = re.search(rf"^from (storage\.[\w.]+) import .*\b{record}\b", text, re.MULTILINE)
        return f"from {found[1] if found else 'TODO'} import {record}"

    def module(self, room: str) -> Path:
        """The operation's module in the folder of its area, which may be new."""
        folder = self.root / room / self.area.stem
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "__init__.py").exists():
            (folder / "__init__.py").write_text(skeleton_texts.ROOM_HEAD)
        return folder / f"{self.noun}.py"


def _end_of_path(lines: list[str], start: int) -> int:
    """The line behind the last one of the path that starts there."""
    end = start + 1
    while end < len(lines) and (not lines[end] or lines[end].startswith("   ")):
        end += 1
    while not lines[end - 1]:
        end -= 1
    return end


def log(root: Path, names: list[str]) -> Path:
    place = root / "CHANGELOG.md"
    line = f"### Added\n- TODO: {' and '.join(names)}.\n"
    place.write_text(place.read_text().replace("### Added\n", line, 1))
    return place


def write(skeleton: Skeleton, record: str | None, columns: tuple[Column, ...]) -> list[Path]:
    """All of it, and of a record that a PUT replaces the GET as well. Raises Refused."""
    made, files = [skeleton], []
    if record:
        owned = RecordSkeleton(skeleton, record, columns)
        getting = skeleton.getting() if owned.is_one_of_each else None
        files += owned.write()
        made = [getting, skeleton] if getting else made
        for one in made:
            one.owned = owned
    for one in made:
        files += [*one.describe(), skeleton_code.handle(one)]
    # What the PUT's own test reads by is shown by that.
    files.append(skeleton_code.test(skeleton, shown=len(made) > 1))
    files.append(log(skeleton.root, [one.name for one in made]))
    files = list(dict.fromkeys(files))
    skeleton_code.tidy(skeleton.root, files)
    return files


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
    parser.add_argument("--area", default="", help="of a new tag: a file of openapi/")
    parser.add_argument("--record", metavar="NAME", help="a table of its own, with this record")
    kinds = ", ".join(skeleton_columns.KINDS)
    column = f"of the record, one of {kinds}; may be repeated"
    parser.add_argument("--column", metavar="NAME:KIND", action="append", default=[], help=column)
    given = parser.parse_args(words)
    if given.column and not given.record:
        raise Refused("--column is of the table that --record makes")
    columns = skeleton_columns.columns(given.column)
    skeleton = Skeleton(root, given.name, given.method, given.path, given.permission, given.area)
    files = write(skeleton, given.record, columns)
    print(
        "written; search for TODO in:", *(f"  {one.relative_to(root)}" for one in files), sep="\n"
    )
    print("then: make fix check, and docs/adding-an-operation.md for what each part needs")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
