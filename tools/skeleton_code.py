"""The skeleton of an operation's handler and of its test."""

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Protocol

from tools import skeleton_texts
from tools.skeleton_columns import body
from tools.skeleton_records import RecordSkeleton, with_imports

_RULES: Final = Path(__file__).resolve().parents[1] / "pyproject.toml"
_ESTATE: Final = "from contract_tests.api.rows import Estate, estate"
_HARNESS: Final = "from contract_tests.api.harness import House"
# What a test has where a path needs no more than these.
_SOON_MADE: Final = {"project_id": "tenant.project_id", "instance_id": "instance_id"}
PARAMETER: Final = re.compile(r"\{(\w+)\}")


class Operation(Protocol):
    """What is known of the operation; `owned` is its own record, if it has one."""

    root: Path
    noun: str
    verb: str
    name: str
    method: str
    path: str
    records: list[str]
    area: Path
    owned: RecordSkeleton | None

    @property
    def tag(self) -> str: ...
    @property
    def reads(self) -> bool: ...
    @property
    def has_body(self) -> bool: ...
    def import_of(self, record: str) -> str: ...
    def module(self, room: str) -> Path: ...


def handle(operation: Operation) -> Path:
    """Write the handler, in a new module where the tag has none."""
    place = operation.module("handlers")
    given = operation.records
    classes = {one: one.title().replace("_", "") for one in given}
    arguments = [f"{one}: {classes[one]}" for one in given]
    arguments += ["body: Body"] if operation.has_body else []
    named = {"verb": operation.verb, "arguments": "".join(f", {one}" for one in arguments)}
    named["change"] = "" if operation.reads or "instance" not in given else skeleton_texts.CHANGE
    imports = [operation.import_of(classes[one]) for one in given]
    owned = operation.owned
    if owned is not None and owned.is_one_of_each:
        area = operation.area.stem
        imports += [
            f"from handlers.{area} import views",
            f"from storage.{area} import {owned.table}",
        ]
        named |= {"table": owned.table, "view": owned.view_name, "record": given[-1]}
        named["audited"] = ", ".join(one.audited for one in owned.columns)
        text = (skeleton_texts.GET if operation.reads else skeleton_texts.PUT).format(**named)
    else:
        target = given[-1] if given else "call.org"
        audit = f"    call.audit(target={target}.id, detail=TODO)\n"
        deletes = operation.method == "DELETE"
        imports += ["from specserver import Reply"] if deletes else []
        answer = "Reply" if deletes else "Body"
        named |= {"answer": answer, "audit": "" if operation.reads else audit}
        text = skeleton_texts.HANDLER.format(**named)
    new = skeleton_texts.HANDLERS.format(tag=operation.tag)
    before = place.read_text() if place.exists() else new
    place.write_text(with_imports(before, imports) + text)
    return place


def test(operation: Operation, *, shown: bool) -> Path:
    """Write the test to begin with. `shown`: a GET of the same path answers what this one did."""
    folder = operation.root / "contract_tests" / "api" / operation.area.stem
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / f"test_{operation.noun}.py"
    text = place.read_text() if place.exists() else skeleton_texts.TESTS.format(noun=operation.noun)
    helper = _path_helper(operation, "path")
    if "def path(" in text and helper.text not in text:
        helper = _path_helper(operation, f"path_of_{operation.verb}")
    imports = [*helper.imports, "import pytest"]
    audited = ""
    if not operation.reads:
        imports.append("from contract_tests import written")
        audited = skeleton_texts.AUDITED.format(name=operation.name)
    sent = body(operation.owned.columns) if operation.owned else "{}"
    place.write_text(
        with_imports(text, imports)
        + ("" if helper.text in text else helper.text)
        + skeleton_texts.TEST.format(
            verb=operation.verb,
            name=operation.name,
            here=helper.here,
            where=helper.call,
            method=operation.method,
            body=f", json={sent}" if operation.has_body else "",
            shown=skeleton_texts.SHOWN if shown else "",
            audited=audited,
        )
    )
    return place


class _PathHelper:
    """A function of a test's file that makes the path; `here` makes what it is of."""

    def __init__(self, name: str, taken: list[str], path: str, *, estate: bool) -> None:
        self.here = "    tenant = house.tenant()\n"
        self.imports = [_HARNESS]
        given = []
        if estate:
            taken, given = ["here: Estate"], ["here"]
            self.here = "    here = estate(house)\n    tenant = here.tenant\n"
            self.imports.append(_ESTATE)
        else:
            if "tenant." in path:
                taken, given = ["tenant: Tenant", *taken], ["tenant"]
                self.imports[0] += ", Tenant"
            given += ["house.instance(tenant)"] if "instance_id: str" in taken else []
        self.call = f"{name}({', '.join(given)})"
        quoted = f'f"{path}"' if "{" in path else f'"{path}"'
        self.text = skeleton_texts.PATH_HELPER.format(
            helper=name, parameters=", ".join(taken), path=quoted
        )


def _path_helper(operation: Operation, name: str) -> _PathHelper:
    needed = [one for one in PARAMETER.findall(operation.path) if one != "org_id"]
    estate = not {*needed} <= {*_SOON_MADE}
    tenant = "here.tenant" if estate else "tenant"
    path = operation.path.replace("/v1/orgs/{org_id}", f"{{{tenant}.path}}")
    for one in needed:
        filled = f"here.ids['{one}']" if estate else _SOON_MADE[one]
        path = path.replace(f"{{{one}}}", f"{{{filled}}}")
    taken = ["instance_id: str"] if "instance_id" in needed else []
    return _PathHelper(name, taken, path, estate=estate)


def tidy(root: Path, written: Iterable[Path]) -> None:
    """Imports and names in their order, and lines as long as they may be, as by `make fix`."""
    modules = [str(one) for one in written if one.suffix == ".py"]
    ruff = [sys.executable, "-m", "ruff"]
    rules = ["--quiet", "--no-cache", "--config", str(_RULES)]
    order = [*ruff, "check", "--fix-only", "--select", "I,RUF022", *rules, *modules]
    subprocess.run(order, cwd=root, check=True)
    subprocess.run([*ruff, "format", *rules, *modules], cwd=root, check=True)
