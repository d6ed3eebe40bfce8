"""The audit log: who did what, page by page and as a file."""

import csv
import http.client
import io
import json
import re
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from contract_tests.api.conftest import MakeHouse
from contract_tests.api.harness import House, Tenant
from contract_tests.api.oracle import OracleError
from contract_tests.api.rows import is_problem
from contract_tests.api.streams import served
from control.cells.signing import Signer
from control.events import audit_records, spreadsheet_cells
from control.events.audit_csv import COLUMNS
from control.work import Operation
from control.workflows.events import audit_publishing, audit_sealing
from handlers.events import audit as handler
from menagerie import audit_verify
from menagerie.errors import SettingsError
from storage import identifiers
from storage.access.projects import Project
from storage.errors import StorageUnavailable
from storage.events import audit
from storage.work import Work

INSTANCE = "inst_01JD7QK3V8Y2M4N6P8R0S2T4VA"
BROKEN = ",".join(COLUMNS) + "\r\naud_1,yesterday,a,user,,,,,{},1,00\r\n"


def log_of(tenant: Tenant) -> str:
    return f"{tenant.path}/audit"


def export_of(tenant: Tenant) -> str:
    return f"{tenant.path}/audit/export"


def write(house: House, tenant: Tenant, count: int, **values: Any) -> None:
    with house.database.write() as db:
        for number in range(count):
            given = {"actor_kind": "system", "detail": {"number": number}, **values}
            audit.append(db, tenant.org_id, "instance.pause", **given)
    # An export ends before the moment at which it is asked for, in milliseconds.
    time.sleep(0.002)


def seal_and_publish(house: House) -> None:
    """As the worker does."""
    for workflow in (audit_sealing.seal, audit_publishing.publish):
        work = Work(seq=1, lease=1, operation="op_1", kind=workflow.kind, lane="a", steps={})
        work.args, work.attempts = {}, 0
        workflow.run(Operation(work, house.services))


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler, "PAGE", 2)


def test_who_did_what_is_listed_newest_first(house: House) -> None:
    tenant = house.tenant()
    made = house.post(f"{tenant.path}/projects", tenant.owner.session, json={"name": "Shop"})
    project_id = made.json()["id"]
    renamed = f"{tenant.path}/projects/{project_id}"
    house.request("PATCH", renamed, tenant.key, json={"name": "Store"})
    found = house.get(log_of(tenant), tenant.key).json()["items"]
    assert [one["action"] for one in found] == ["project.update", "project.create"]
    assert [one["actor_id"] for one in found] == [tenant.key_id, tenant.owner.id]
    assert [one["actor_kind"] for one in found] == ["api_key", "user"]
    assert {one["target"] for one in found} == {project_id}
    assert found[1]["request_id"] == made.headers["x-request-id"]
    assert found[1]["ip"] == "203.0.113.7"


def test_filters_are_combined(house: House) -> None:
    tenant = house.tenant()
    write(house, tenant, 2)
    write(house, tenant, 1, target="inst_1")
    write(house, tenant, 1, target="inst_1", actor_kind="user", actor_id=tenant.owner.id)
    between = house.now()

    def found(**filters: Any) -> int:
        shown = house.get(log_of(tenant), tenant.key, params=filters).json()["items"]
        exported = rows(house.get(export_of(tenant), tenant.key, params=filters).text)
        assert [one["id"] for one in exported if one["action"] != "audit.export"] == [
            one["id"] for one in shown if one["action"] != "audit.export"
        ]
        return len([one for one in shown if one["action"] != "audit.export"])

    assert found() == 4
    assert found(action="instance.pause") == 4
    assert found(action="instance.resume") == 0
    assert found(target="inst_1") == 2
    assert found(target="inst_1", actor_id=tenant.owner.id) == 1
    assert found(actor_kind="user") == 1
    assert found(actor_kind="system") == 3
    write(house, tenant, 1, request_id="req_of_a_test", detail={"instance": INSTANCE})
    write(house, tenant, 1, detail={"instance_id": INSTANCE})
    write(house, tenant, 1, target=INSTANCE)
    write(house, tenant, 1, detail={"instance_id": {"id": INSTANCE}})
    assert found(request_id="req_of_a_test") == 1
    assert found(request_id="req_of_a_test", actor_kind="user") == 0
    assert found(instance_id=INSTANCE) == 3
    assert found(instance_id=INSTANCE.replace("A", "B")) == 0
    later, earlier = (between + timedelta(seconds=s) for s in (10, -3600))
    assert found(**{"from": earlier.isoformat(), "to": later.isoformat()}) == 8
    assert found(**{"from": later.isoformat()}) == 0
    assert found(to=earlier.isoformat()) == 0


@pytest.mark.usefixtures("small_pages")
def test_all_of_it_is_exported_over_several_pages(house: House) -> None:
    tenant, other = house.tenant(), house.tenant("canary-91d")
    write(house, tenant, 5)
    write(house, other, 5, target="canary-91d")
    answer = house.get(export_of(tenant), tenant.key)
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.headers["content-disposition"] == 'attachment; filename="audit.csv"'
    assert "content-length" not in answer.headers
    found = rows(answer.text)
    assert tuple(found[0]) == COLUMNS
    assert [one["detail"] for one in found] == [f'{{"number":{n}}}' for n in (4, 3, 2, 1, 0)]
    assert "canary-91d" not in answer.text
    is_problem(house.get(export_of(other), tenant.key), 404)


def test_an_export_is_audited_and_no_part_of_itself(house: House) -> None:
    tenant = house.tenant()
    params = {"action": "instance.pause"}
    assert rows(house.get(export_of(tenant), tenant.key, params=params).text) == []
    (shown,) = rows(house.get(export_of(tenant), tenant.key).text)
    assert shown["action"] == "audit.export"
    newest, first = house.get(log_of(tenant), tenant.key).json()["items"]
    assert (newest["action"], first["action"]) == ("audit.export", "audit.export")
    assert (first["detail"], newest["detail"]) == (params, {})


def test_no_cell_is_a_formula(house: House) -> None:
    tenant = house.tenant()
    write(house, tenant, 1, request_id="-2-3-cmd-8", target='=cmd|"/C calc"!A0')
    found = rows(house.get(export_of(tenant), tenant.key).text)
    assert (found[0]["request_id"], found[0]["target"]) == ("'-2-3-cmd-8", '\'=cmd|"/C calc"!A0')


@pytest.mark.parametrize("prefix", ["\n", "\t", "\r", "\uff1d", "\uff0b", "\uff0d", "\uff20"])
def test_no_cell_is_a_formula_by_an_unusual_prefix(house: House, prefix: str) -> None:
    tenant = house.tenant()
    cell = f"{prefix}1+1"
    write(house, tenant, 1, request_id=cell, target=cell)
    found = rows(house.get(export_of(tenant), tenant.key).text)
    assert (found[0]["request_id"], found[0]["target"]) == (f"'{cell}", f"'{cell}")
    assert spreadsheet_cells.unescaped(found[0]["target"]) == cell, "it is verified as it was"


def test_too_many_entries_are_refused_with_the_moment_from_which_there_are_not(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handler, "EXPORT_MAX", 3)
    tenant = house.tenant()
    write(house, tenant, 3)
    assert len(rows(house.get(export_of(tenant), tenant.key).text)) == 3
    refused = house.get(export_of(tenant), tenant.key)
    is_problem(refused, 422, "export_too_large")
    oldest = house.get(log_of(tenant), tenant.key).json()["items"][-1]["time"]
    assert oldest in refused.json()["errors"][0]["message"]


def test_nobody_waits_for_what_an_export_reads(
    make_house: MakeHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A filter that matches nothing looks at every entry; SQLite has one writer."""
    house = make_house()
    tenant, other = house.tenant(), house.tenant()
    counted = audit.time_of

    def counts(*given: Any) -> Any:
        write(house, other, 1)
        return counted(*given)

    monkeypatch.setattr(audit, "time_of", counts)
    assert house.get(export_of(tenant), tenant.key).status_code == 200
    assert len(house.get(log_of(other), other.key).json()["items"]) == 1
    (entry,) = house.get(log_of(tenant), tenant.key).json()["items"]
    assert entry["action"] == "audit.export"


@pytest.mark.parametrize("does", ["adds", "changes"])
def test_what_only_reads_cannot_write_unnoticed(
    house: House, monkeypatch: pytest.MonkeyPatch, does: str
) -> None:
    """It would be lost: the transaction that follows has the entry alone."""
    tenant = house.tenant()

    def writes(call: Any, _: object) -> None:
        with_id = {"id": identifiers.new("proj_"), "org_id": call.org.id}
        made = Project(**with_id, name="Shop", slug="shop-of-mine")
        call.db.add(made if does == "adds" else call.db.merge(made, load=False))
        made.name = "Store"

    monkeypatch.setattr(handler, "_check_size", writes)
    with pytest.raises(OracleError, match="500"):
        house.get(export_of(tenant), tenant.key)


def test_published_heads_are_listed_with_signatures_that_anybody_can_check(
    make_house: MakeHouse, tmp_path: Path
) -> None:
    house = make_house()
    tenant, other = house.tenant(), house.tenant()
    for at in (tenant, other, tenant):
        write(house, at, 2, target="'=1+1", detail={"text": "-\u00e9\n,\"'", "none": None})
        seal_and_publish(house)
    answer = house.get(f"{log_of(tenant)}/heads", tenant.key)
    newest, first = answer.json()["items"]
    assert (first["seq"], newest["seq"], newest["chain"]) == (2, 4, tenant.org_id)
    shown = house.get(log_of(tenant), tenant.key).json()["items"]
    assert [one["seq"] for one in shown] == [4, 3, 2, 1]
    assert [one["hash"] for one in shown[::2]] == [newest["hash"], first["hash"]]
    for number in (0, 1):
        (tmp_path / f"{number}.csv").write_text(house.get(export_of(tenant), tenant.key).text)
    (tmp_path / "heads.json").write_bytes(answer.content)
    files = [tmp_path / "0.csv", tmp_path / "1.csv"]
    found = audit_verify.export(files, tenant.org_id, tmp_path / "heads.json")
    assert (found.findings, found.entries, found.heads) == ([], 4, 2)
    is_problem(house.get(f"{log_of(other)}/heads", tenant.key), 404)


def test_an_entry_of_any_length_is_verified(make_house: MakeHouse, tmp_path: Path) -> None:
    house = make_house()
    tenant = house.tenant()
    write(house, tenant, 1, detail={"text": "x" * 200_000})
    seal_and_publish(house)
    file = tmp_path / "audit.csv"
    file.write_text(house.get(export_of(tenant), tenant.key).text)
    found = audit_verify.export([file], tenant.org_id, None)
    assert (found.findings, found.entries) == ([], 1)


def signed_by_somebody_else(head: dict[str, Any]) -> dict[str, Any]:
    own = Signer(Ed25519PrivateKey.generate(), clock=lambda: 0)
    told = {name: head[name] for name in ("chain", "seq", "hash")}
    (signed,) = audit_records.signed_heads(own, [told], head["time"])
    return signed | {"public_key": audit_records.encoded(own.public_key)}


def test_a_changed_export_is_found(make_house: MakeHouse, tmp_path: Path) -> None:
    house = make_house()
    tenant = house.tenant()
    write(house, tenant, 3)
    seal_and_publish(house)
    heads, file = tmp_path / "heads.json", tmp_path / "audit.csv"
    page = house.get(f"{log_of(tenant)}/heads", tenant.key)
    heads.write_bytes(page.content)
    header, third, second, first = house.get(export_of(tenant), tenant.key).text.splitlines()

    def found(*lines: str) -> str:
        file.write_text("\r\n".join([header, *lines, ""]))
        return "\n".join(audit_verify.export([file], tenant.org_id, heads).findings)

    assert found(third, second, first) == found(first, second, third) == ""
    for was, becomes in (("instance.pause", "instance.resume"), ('""number"":1', '""number"":7')):
        assert was in second
        assert "entry 2 (aud_" in found(third, second.replace(was, becomes), first)
    assert "entry 2 is missing" in found(third, first)
    assert "entry 3 was published" in found(second, first)
    assert "is there twice" in found(third, second, first, second.replace("system", "user"))
    with pytest.raises(SettingsError, match="has no zone"):
        found(third, re.sub(r"(T[\d:.]+)Z,", r"\1,", second), first)
    forged = page.json()
    forged["items"][0] |= signed_by_somebody_else(forged["items"][0])
    heads.write_text(json.dumps({"items": [*forged["items"], *page.json()["items"]]}))
    assert "signed with another key" in found(third, second, first)
    forged = page.json()
    forged["items"][0]["hash"] = "0" * 64
    heads.write_text(json.dumps(forged))
    assert "the signature of the head at entry 3" in found(third, second, first)


@pytest.mark.parametrize("content", ["", "id,time\r\n", "id\x00", "\xff", BROKEN])
def test_what_is_no_export_is_refused_with_the_reason(tmp_path: Path, content: str) -> None:
    (tmp_path / "audit.csv").write_bytes(content.encode("latin-1"))
    with pytest.raises(SettingsError, match=r"audit\.csv"):
        audit_verify.export([tmp_path / "audit.csv"], "org_1", None)


def test_the_command_says_what_it_cannot_check(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "menagerie", "audit", "verify", "--home", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    told = f"menagerie audit verify: {tmp_path} is not the home of an installation"
    assert (ended.returncode, ended.stderr.startswith(told)) == (2, True), ended.stderr


@pytest.fixture
def several_pages(make_house: MakeHouse, monkeypatch: pytest.MonkeyPatch) -> tuple[House, Tenant]:
    """A house of its own, and whose entries are exported one a page."""
    house = make_house()
    tenant = house.tenant()
    write(house, tenant, 3)
    monkeypatch.setattr(handler, "PAGE", 1)
    return house, tenant


def test_its_right_is_looked_at_for_each_page(
    several_pages: tuple[House, Tenant], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Revoked after the first page: what comes is broken off, and does not look whole."""
    house, tenant = several_pages
    read = audit.page

    def revokes(*given: Any, **named: Any) -> Any:
        found = read(*given, **named)
        house.change_key(tenant.org_id, tenant.key_id, revoked_at=house.now())
        return found

    monkeypatch.setattr(audit, "page", revokes)
    assert len(_broken_off(house, tenant)) == 2


def test_a_database_that_fails_in_the_middle_breaks_it_off(
    several_pages: tuple[House, Tenant], monkeypatch: pytest.MonkeyPatch
) -> None:
    house, tenant = several_pages
    read = audit.page

    def fails(*given: Any, **named: Any) -> Any:
        if named["after"] is not None:
            raise StorageUnavailable("the database cannot be reached")
        return read(*given, **named)

    monkeypatch.setattr(audit, "page", fails)
    assert len(_broken_off(house, tenant)) == 2


def _broken_off(house: House, tenant: Tenant) -> list[str]:
    """The lines that came of an export that did not come whole."""
    with served(house) as address:
        connection = http.client.HTTPConnection(*address, timeout=60)
        headers = {"Authorization": f"Bearer {tenant.key}"}
        connection.request("GET", export_of(tenant), headers=headers)
        answer = connection.getresponse()
        assert answer.status == 200
        with pytest.raises((http.client.IncompleteRead, ConnectionError)) as broken:
            answer.read()
    part = getattr(broken.value, "partial", b"")
    return str(part.decode()).splitlines()
