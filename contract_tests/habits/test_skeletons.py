"""The skeleton of an operation that tools/new_operation.py writes, and what is left unwritten."""

import ast
import re
import runpy
import shutil
import subprocess
from pathlib import Path

import pytest

from contract_tests.habits.test_sizes import ROOT
from specserver import Document
from tools import new_operation
from tools.lint_document import faults

# There will be none of these: what is written here is a skeleton.
PATH = "/v1/orgs/{org_id}/instances/{instance_id}/whistles"
ALLOWED = {
    "tools/new_operation.py",
    "tools/skeleton_records.py",
    "tools/skeleton_texts.py",
    "contract_tests/habits/test_skeletons.py",
}
ALLOWED |= {"tools/document_rules/operations.py", "docs/adding-an-operation.md"}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for folder in ("handlers", "contract_tests/api", "storage/migrations"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("openapi.yaml", "CHANGELOG.md", "storage/records.py", "storage/conflicts.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "openapi", tmp_path / "openapi")
    shutil.copytree(ROOT / "storage/migrations/versions", tmp_path / "storage/migrations/versions")
    return tmp_path


def test_a_skeleton_lacks_only_what_its_author_knows(checkout: Path) -> None:
    assert new_operation.main(["whistles.get", "GET", PATH], checkout) == 0
    assert (
        new_operation.main(["whistles.replace", "PUT", PATH, "--record", "Whistle"], checkout) == 0
    )
    assert new_operation.main(["whistles.clear", "DELETE", PATH], checkout) == 0
    found = [str(fault) for fault in faults(checkout / "openapi.yaml")]
    left = {re.sub(r"^(\S+) line \d+", r"\1", one) for one in found}
    assert left == {
        "openapi.yaml: says TODO: write it",
        "instances.yaml: says TODO: write it",
        "whistles.replace: the body/todo is any text: make it a DisplayName, or say x-free-text",
        (
            "whistles.clear: it destroys data, widens access or hands out credentials: x-authorize"
            " {assurance}, or an x-assurance-reason"
        ),
    }
    handlers = ast.parse((checkout / "handlers" / "instances" / "whistles.py").read_text())
    functions = [one.name for one in handlers.body if isinstance(one, ast.FunctionDef)]
    assert functions == ["get", "replace", "clear"]
    written = [*checkout.rglob("*whistles*.py")]
    assert len(written) == 4, "handler, test, record, migration"
    for one in written:
        ast.parse(one.read_text())
        assert "TODO" in one.read_text()
    assert written_of(checkout, "storage/instances/whistles.py", "instance_id.*primary_key=True")
    assert written_of(
        checkout, "storage/migrations/versions/*_whistles.py", 'Constraint."instance_id".*pk'
    )
    assert explained(checkout, "pk_whistles") == "TODO: the instance already has this whistle"
    assert "TODO" in view_of(checkout, "instances", "whistle")


def explained(checkout: Path, constraint: str) -> str:
    """What a caller reads where the constraint refuses a change."""
    conflicts = runpy.run_path(str(checkout / "storage" / "conflicts.py"))
    return str(conflicts["SENTENCES"][conflicts["CONSTRAINTS"][constraint]])


def view_of(checkout: Path, area: str, name: str) -> str:
    """Its source; the file is one of Python's, and imports the record."""
    text = (checkout / "handlers" / area / "views.py").read_text()
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


def test_a_view_comes_after_those_of_its_area(checkout: Path) -> None:
    folder = checkout / "handlers" / "network"
    shutil.copytree(ROOT / "handlers" / "network", folder)
    before = (folder / "views.py").read_text()
    asked = ["tin_whistles.create", "POST", "/v1/orgs/{org_id}/tin-whistles", "--area", "network"]
    assert new_operation.main([*asked, "--record", "TinWhistle"], checkout) == 0
    after = (folder / "views.py").read_text()
    assert set(before.splitlines()) < set(after.splitlines())
    assert after.index("\ndef domain(") < after.index("\ndef tin_whistle(")
    assert "record.todo" in view_of(checkout, "network", "tin_whistle")
    said = "TODO: the organization already has this tin whistle"
    assert explained(checkout, "uq_tin_whistles_org_id_todo") == said
    unique = r'UniqueConstraint."org_id", "todo", name="uq_tin_whistles_org_id_todo"'
    assert written_of(checkout, "storage/migrations/versions/*_tin_whistles.py", unique)
    assert written_of(
        checkout, "storage/network/tin_whistles.py", r'UniqueConstraint."org_id", "todo"'
    )


def test_a_view_that_is_there_is_not_written_again(checkout: Path) -> None:
    folder = checkout / "handlers" / "network"
    shutil.copytree(ROOT / "handlers" / "network", folder)
    asked = ["whistles.create", "POST", "/v1/orgs/{org_id}/whistles", "--area", "network"]
    with pytest.raises(SystemExit, match=re.escape("views.py has a view domain already")):
        new_operation.main([*asked, "--record", "Domain"], checkout)
    assert not [*checkout.rglob("*whistles*.py")]


def test_what_a_put_does_not_replace_has_an_id_of_its_own(checkout: Path) -> None:
    asked = ["whistles.create", "POST", PATH, "--record", "Whistle"]
    assert new_operation.main(asked, checkout) == 0
    assert written_of(checkout, "storage/instances/whistles.py", r"\bid: .*primary_key=True")
    assert written_of(checkout, "storage/migrations/versions/*_whistles.py", 'Constraint."id".*pk')


def test_records_of_one_minute_have_migrations_one_after_the_other(checkout: Path) -> None:
    for noun, record in (("whistles", "Whistle"), ("drums", "Drum")):
        path = PATH.replace("whistles", noun).replace("whistle", noun)
        asked = [f"{noun}.create", "POST", path, "--record", record]
        assert new_operation.main(asked, checkout) == 0
    versions = checkout / "storage/migrations/versions"
    whistles, drums = (next(versions.glob(f"*_{each}.py")).name for each in ("whistles", "drums"))
    assert whistles.partition("_")[0] < drums.partition("_")[0]
    assert f'down_revision = "{whistles.partition("_")[0]}"' in (versions / drums).read_text()


def written_of(checkout: Path, name: str, pattern: str) -> bool:
    (found,) = checkout.glob(name)
    return re.search(pattern, found.read_text()) is not None


@pytest.mark.parametrize(
    ("method", "area"), [("POST", "billing"), ("DELETE", "billing"), ("GET", "events")]
)
def test_an_area_gets_its_first_operation(checkout: Path, method: str, area: str) -> None:
    path = "/v1/orgs/{org_id}/invoices"
    assert new_operation.main(["invoices.try", method, path, "--area", area], checkout) == 0
    left = [str(fault) for fault in faults(checkout / "openapi.yaml")]
    assert f"{area}.yaml line 1: says TODO: write it" in left or area == "events"
    assert not [one for one in left if "root" in one or "groups" in one or "its tag" in one]
    document = Document.load(checkout / "openapi.yaml", checked=True).raw
    assert document["paths"][path][method.lower()]["responses"]["404"]
    groups = {each["name"]: each["tags"] for each in document["x-tagGroups"]}
    assert "Invoices" in groups[area.capitalize()]
    assert document["webhooks"]["instance.paused.v1"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["instances.get", "GET", PATH], "has an operation instances.get already"),
        (
            ["whistles.get", "GET", "/v1/orgs/{org_id}"],
            "an operation at GET /v1/orgs/{org_id} already",
        ),
        (["Whistles", "GET", PATH], "write noun.verb"),
        (
            ["whistles.get", "GET", "/v1/orgs/{org_id}/whistles/{whistle_id}"],
            "whistle_id is not a path parameter",
        ),
        (["whistles.get", "GET", PATH, "--area", "labels"], "choose one of access, billing,"),
        (["queues.peek", "GET", PATH, "--area", "network"], "the tag Queues is of data"),
    ],
)
def test_what_cannot_be_written_is_refused_and_nothing_is(
    checkout: Path, words: list[str], said: str
) -> None:
    document = [checkout / "openapi.yaml", *checkout.glob("openapi/*.yaml")]
    before = [one.read_text() for one in document]
    with pytest.raises(SystemExit, match=re.escape(said)):
        new_operation.main(words, checkout)
    assert [one.read_text() for one in document] == before
    assert not list(checkout.glob("handlers/*"))


def test_nothing_is_left_unwritten() -> None:
    listed = ["git", "grep", "-lw", "TODO"]
    found = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    assert set(found.split()) <= ALLOWED
