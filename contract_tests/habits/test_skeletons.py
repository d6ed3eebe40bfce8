"""The skeleton of an operation that tools/new_operation.py writes, and what is left unwritten."""

import ast
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from contract_tests.habits.test_sizes import ROOT
from specserver import Document
from specserver.written import load
from tools import new_operation
from tools.lint_document import faults

# There will be none of these: what is written here is a skeleton.
ORG = "/v1/orgs/{org_id}"
PATH = f"{ORG}/instances/{{instance_id}}/whistles"
FILES = (
    *("openapi.yaml", "CHANGELOG.md", "storage/records.py", "storage/conflicts.py"),
    "control/workflows/instances/erasure.py",
    "contract_tests/workflows/instances/test_fates.py",
)
FOLDERS = ("openapi", "handlers/network", "storage/migrations/versions")
ALLOWED = {
    "tools/new_operation.py",
    "tools/skeleton_code.py",
    "tools/skeleton_columns.py",
    "tools/skeleton_records.py",
    "tools/skeleton_texts.py",
    "contract_tests/habits/test_skeletons.py",
}
ALLOWED |= {"tools/document_rules/operations.py", "docs/adding-an-operation.md"}


def checked_out(folder: Path) -> Path:
    for name in FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    for name in FOLDERS:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    return folder


WRITTEN: list[list[str]] = [
    ["whistles.replace", "PUT", PATH, "--record", "Whistle"],
    ["whistles.clear", "DELETE", PATH],
    ["labels.replace", "PUT", PATH.replace("whistles", "labels"), "--record", "Labels"],
    ["drums.create", "POST", PATH.replace("whistles", "drums"), "--record", "Drum"],
    ["tin_whistles.create", "POST", f"{ORG}/tin-whistles", "--record", "TinWhistle"],
    ["coupons.create", "POST", f"{ORG}/coupons", "--area", "growth"],
    ["refunds.delete", "DELETE", f"{ORG}/refunds", "--area", "growth"],
    ["echoes.get", "GET", f"{ORG}/backups/{{backup_id}}/echoes", "--area", "events"],
]
WRITTEN[2] += ["--column", "pairs:map", "--column", "order:list", "--column", "rank:integer"]
WRITTEN[2] += ["--column", "pinned:boolean"]
WRITTEN[4] += ["--area", "network"]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with each of these skeletons, one after the other."""
    checkout = checked_out(tmp_path_factory.mktemp("written"))
    for words in WRITTEN:
        assert new_operation.main(words, checkout) == 0
    return checkout


@pytest.fixture(scope="module")
def left(written: Path) -> set[str]:
    """What its lint finds, without numbers of lines."""
    found = [str(fault) for fault in faults(written / "openapi.yaml")]
    return {re.sub(r"^(\S+) line \d+", r"\1", one) for one in found}


def source(written: Path, name: str) -> str:
    """Of the one file of this name, which is one of Python's."""
    (found,) = written.glob(name)
    text = found.read_text()
    ast.parse(text)
    return text


def test_a_skeleton_lacks_only_what_its_author_knows(written: Path, left: set[str]) -> None:
    about = ("whistles.", "labels.", "openapi.yaml", "instances.yaml", "root", "groups")
    assert {one for one in left if one.startswith(about)} == {
        "openapi.yaml: says TODO: write it",
        "instances.yaml: says TODO: write it",
        "whistles.replace: the body/todo is any text: make it a DisplayName, or say x-free-text",
        (
            "whistles.clear: it destroys data, widens access or hands out credentials: x-authorize"
            " {assurance}, or an x-assurance-reason"
        ),
    }
    names = ["handlers", "contract_tests/api", "storage/instances", "storage/migrations"]
    files = {str(one.relative_to(written)) for one in written.rglob("*whistles*.py")}
    assert all(any(one.startswith(name) for one in files) for name in names)
    assert all("TODO" in source(written, one) for one in files)
    assert (written / "CHANGELOG.md").read_text().count("TODO: labels.get and labels.replace.") == 1


def test_a_put_and_its_get_are_whole_but_for_the_values(written: Path) -> None:
    handlers = source(written, "handlers/instances/labels.py")
    assert handlers.startswith('"""Handlers of the tag Labels: ')
    assert "import Reply" not in handlers
    _, get, replace = re.split(r"^def ", handlers, flags=re.MULTILINE)
    assert get.startswith("get(call: OrgCall, instance: Instance) -> Body:\n")
    assert "return views.labels(labels.of_instance(call.db, instance))" in get
    lines = [line.strip() for line in replace.splitlines()]
    assert lines[:3] == [
        "replace(call: OrgCall, instance: Instance, body: Body) -> Body:",
        "instance.change(waits=False)",
        "replaced = labels.replace(call.db, instance, body)",
    ]
    assert replace.count("TODO") == 1
    record = source(written, "storage/instances/labels.py")
    for said in (
        'mapped_column(ForeignKey("instances.id"), primary_key=True)',
        "pairs: Mapped[dict[str, str]] = mapped_column(Json)",
        "pinned: Mapped[bool]\n",
        'replaced.order = values["order"]',
        "db.add(replaced)\n    db.flush()\n",
    ):
        assert said in record
    migration = source(written, "storage/migrations/versions/*_labels.py")
    assert 'sa.Column("order", Json, nullable=False)' in migration
    assert "from storage.columns import Json, Timestamp\n" in migration
    assert 'sa.PrimaryKeyConstraint("instance_id", name="pk_labels")' in migration
    assert "pk_labels" not in source(written, "storage/conflicts.py")
    path = load(written / "openapi/instances.yaml")["paths"][PATH.replace("whistles", "labels")]
    assert list(path) == ["get", "put"], "what reads comes before what changes"
    assert path["get"]["x-authorize"]["permission"] == "instances:read"
    assert "what branches and restored instances get" in path["put"]["description"]


def test_a_test_makes_no_more_than_its_path_needs(written: Path) -> None:
    of_instance = source(written, "contract_tests/api/instances/test_labels.py")
    assert 'return f"{tenant.path}/instances/{instance_id}/labels"' in of_instance
    assert "where = path(tenant, house.instance(tenant))" in of_instance
    assert "house.get(where, tenant.key).json() == answer.json()" in of_instance
    assert "estate" not in of_instance
    of_org = source(written, "contract_tests/api/growth/test_coupons.py")
    assert "where = path(tenant)\n" in of_org
    of_backup = source(written, "contract_tests/api/events/test_echoes.py")
    assert "here = estate(house)\n" in of_backup
    assert "{here.tenant.path}/backups/{here.ids['backup_id']}/echoes" in of_backup
    whistles = source(written, "contract_tests/api/instances/test_whistles.py")
    assert whistles.count("def path(") == 1
    assert whistles.count("def test_") == 2


def test_what_an_instance_has_is_forgotten_with_it_unless_its_author_decides(written: Path) -> None:
    erasure = source(written, "control/workflows/instances/erasure.py")
    fates = source(written, "contract_tests/workflows/instances/test_fates.py")
    for table in ("whistles", "labels", "drums"):
        assert f"        {table}.forget(db, instance)\n" in erasure
        assert f'    "{table}": Fate(kept=None),  # TODO' in fates
        assert "\ndef forget(" in source(written, f"storage/instances/{table}.py")
    imported = re.search(r"^from storage\.instances import (.*)$", erasure, re.MULTILINE)
    assert imported is not None
    names = imported[1].split(", ")
    assert {"drums", "labels", "whistles"} < set(names)
    assert names == sorted(names)
    assert "tin_whistles" not in erasure + fates
    assert "\ndef forget(" not in source(written, "storage/network/tin_whistles.py")


def test_what_is_written_has_its_place_in_the_files_that_there_are(written: Path) -> None:
    records = source(written, "storage/records.py")
    imported = re.findall(r"^from .*$", records, re.MULTILINE)
    assert imported == sorted(set(imported))
    names = re.findall(r'^    "(\w+)",$', records, re.MULTILINE)
    assert {"Labels", "TinWhistle", "Whistle"} < set(names)
    assert names == sorted(names)
    before, after = ((root / "handlers/network/views.py").read_text() for root in (ROOT, written))
    assert set(before.splitlines()) < set(after.splitlines())
    assert after.index("\ndef domain(") < after.index("\ndef tin_whistle(")
    assert "record.todo" in view_of(written, "network", "tin_whistle")
    assert view_of(written, "instances", "labels").count('": record.') == 4
    said = "TODO: the organization already has this tin whistle"
    assert explained(written, "uq_tin_whistles_org_id_todo") == said
    unique = 'UniqueConstraint("org_id", "todo"'
    assert unique in source(written, "storage/migrations/versions/*_tin_whistles.py")
    assert unique in source(written, "storage/network/tin_whistles.py")


def test_what_a_put_does_not_replace_has_an_id_of_its_own(written: Path) -> None:
    assert "    id: Mapped[str] = mapped_column(primary_key=True)\n" in source(
        written, "storage/instances/drums.py"
    )
    migration = source(written, "storage/migrations/versions/*_drums.py")
    assert 'sa.PrimaryKeyConstraint("id", name="pk_drums")' in migration


def test_records_of_one_minute_have_migrations_one_after_the_other(written: Path) -> None:
    versions = written / "storage/migrations/versions"
    made = [next(versions.glob(f"*_{each}.py")) for each in ("labels", "drums", "tin_whistles")]
    revisions = [one.name.partition("_")[0] for one in made]
    assert revisions == sorted(set(revisions))
    for before, one in zip(revisions, made[1:], strict=False):
        assert f'down_revision = "{before}"' in one.read_text()


def explained(checkout: Path, constraint: str) -> str:
    """What a caller reads where the constraint refuses a change."""
    conflicts = runpy.run_path(str(checkout / "storage" / "conflicts.py"))
    return str(conflicts["SENTENCES"][conflicts["CONSTRAINTS"][constraint]])


def view_of(checkout: Path, area: str, name: str) -> str:
    """Its source; the file is one of Python's, and imports the record."""
    text = source(checkout, f"handlers/{area}/views.py")
    imported = {
        each.name
        for node in ast.parse(text).body
        if isinstance(node, ast.ImportFrom)
        for each in node.names
    }
    (view,) = re.findall(
        rf"^def {name}\(record: (\w+)\) -> Json:\n((?: .*\n)+)", text, re.MULTILINE
    )
    assert view[0] in imported
    return str(view[1])


def test_an_area_gets_its_first_operation(written: Path, left: set[str]) -> None:
    assert "growth.yaml: says TODO: write it" in left
    assert not [one for one in left if "root" in one or "groups" in one or "its tag" in one]
    document = Document.load(written / "openapi.yaml", checked=True).raw
    for words in WRITTEN[5:]:
        operation: Any = document["paths"][words[2]][words[1].lower()]
        assert operation["responses"]["404"]
    groups = {each["name"]: each["tags"] for each in document["x-tagGroups"]}
    assert {"Coupons", "Refunds"} <= {*groups["Growth"]}
    assert "Echoes" in groups["Events"]
    assert document["webhooks"]["instance.paused.v1"]


REFUSED: dict[str, list[str]] = {
    "has an operation instances.get already": ["instances.get", "GET", PATH],
    "an operation at GET /v1/orgs/{org_id} already": ["whistles.get", "GET", ORG],
    "write noun.verb": ["Whistles", "GET", PATH],
    "has a word of Python": ["whistles.try", "GET", PATH],
    "whistle_id is not a path parameter": ["whistles.get", "GET", f"{ORG}/whistles/{{whistle_id}}"],
    "choose one of access, billing,": ["whistles.get", "GET", PATH, "--area", "labels"],
    "the tag Queues is of data": ["queues.peek", "GET", PATH, "--area", "network"],
    "write NAME:KIND, of text, integer,": [
        *("whistles.replace", "PUT", PATH, "--record", "Whistle", "--column", "pitch:float")
    ],
    "has a column org_id already": [
        *("whistles.replace", "PUT", PATH, "--record", "Whistle", "--column", "org_id:text")
    ],
    "of the table that --record makes": ["whistles.get", "GET", PATH, "--column", "pitch:text"],
    "views.py has a view domain already": [
        *("whistles.create", "POST", f"{ORG}/whistles", "--area", "network", "--record", "Domain")
    ],
}


def test_what_cannot_be_written_is_refused_and_nothing_is(tmp_path: Path) -> None:
    checkout = checked_out(tmp_path)

    def contents() -> dict[Path, str]:
        files = [one for one in checkout.rglob("*") if one.is_file()]
        return {one: one.read_text() for one in files if one.name != "__init__.py"}

    before = contents()
    for said, words in REFUSED.items():
        with pytest.raises(SystemExit, match=re.escape(said)):
            new_operation.main(words, checkout)
        assert contents() == before, said


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_skeleton_runs_up_to_what_its_author_knows(tmp_path: Path) -> None:
    """A copy of all of it: rules and the tests of tables hold, and its own says TODO."""
    ignored = shutil.ignore_patterns(".*", "__pycache__", "site", "dist", "node_modules")
    copy = shutil.copytree(ROOT, tmp_path / "copy", ignore=ignored)
    run(copy, 0, "tools.new_operation", *WRITTEN[2])
    run(copy, 0, "ruff", "check", "--quiet", "--extend-ignore", "FIX,TD", ".")
    run(copy, 0, "ruff", "format", "--check", "--quiet", ".")
    names = ["api/test_gone.py", "workflows/instances/test_fates.py"]
    names += ["storage/test_database_migrations.py", "storage/test_tenancy.py"]
    run(copy, 0, "pytest", "-q", "-n0", *(f"contract_tests/{name}" for name in names))
    own = "contract_tests/api/instances/test_labels.py"
    said = run(copy, 1, "pytest", "-q", "-n0", "-m", "", own)
    assert "('labels.replace', 'TODO')" in said
    text = (copy / own).read_text()
    logged = '{"pairs": ["todo"], "order": 1, "rank": 1, "pinned": True}'
    (copy / own).write_text(text.replace('"labels.replace", "TODO"', f'"labels.replace", {logged}'))
    said = run(copy, 1, "pytest", "-q", "-n0", "-m", "", own)
    assert "TODO: labels.replace: its answers" in said


def run(copy: Path, status: int, module: str, *words: str) -> str:
    command = [sys.executable, "-m", module, *words]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def test_nothing_is_left_unwritten() -> None:
    listed = ["git", "grep", "-lw", "TODO"]
    found = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    assert set(found.split()) <= ALLOWED
