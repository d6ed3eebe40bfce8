"""What somebody does who knows how the audit log is checked: it is found, and named."""

import json
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy import delete, select, text

from contract_tests.workflows.events.test_audit_publishing import (
    Log,
    another,
    change,
    entry,
    log,
    rechain,
)
from control.cells.signing import Signer
from control.events import audit_records
from menagerie import audit_verify
from menagerie.audit_logs import LogFolder, lines_in
from storage.access import organizations
from storage.events import audit_chain
from storage.events.audit import AuditEntry
from storage.events.audit_chain import AuditHead
from storage.events.audit_publications import AuditPublication, PublishedHead
from storage.identifiers import new

__all__ = ["log"]


def without_log(log: Log) -> list[str]:
    key = audit_records.encoded(log.stage.services.signer.public_key)
    return audit_verify.database(log.stage.database, log.org_id, None, key, 400).findings


def test_heads_that_are_signed_with_a_key_of_ones_own_are_found(log: Log) -> None:
    log.write(6)
    own = Signer(Ed25519PrivateKey.generate(), clock=lambda: 0)
    with log.stage.database.write() as db:
        change(db, log.org_id)
        rechain(db, log.org_id)
        for head in db.scalars(select(PublishedHead)):
            head.hash = str(db.scalar(select(AuditEntry.hash).where(entry(head.seq))))
            told = {"chain": head.chain, "seq": head.seq, "hash": head.hash}
            time = audit_chain.written(head.published_at)
            (signed,) = audit_records.signed_heads(own, [told], time)
            head.signature = signed["signature"]
            head.public_key = audit_records.encoded(own.public_key)
    assert any("signature of the head at entry 6" in each for each in without_log(log))


def test_a_signed_log_that_is_gone_is_told_once(log: Log) -> None:
    log.write(6)
    for file in log.folder.iterdir():
        file.unlink()
    (found,) = log.findings()
    assert "it has no records, and the database has 3: the log was removed" in found
    log.folder.rmdir()
    assert log.findings() == [found]


def test_all_that_was_removed_before_the_second_head_is_found(log: Log) -> None:
    """As the organization is younger than what would be forgotten by now."""
    with log.stage.database.write() as db:
        log.org_id = organizations.create(db, name="O", slug=new("s").lower(), plan="free").id
    log.append(3)
    log.run("audit.seal")
    log.run("audit.publish")
    with log.stage.database.write() as db:
        head = db.get_one(AuditHead, log.org_id)
        head.kept_from, head.hash_before = 4, head.hash
        db.execute(delete(AuditEntry).where(AuditEntry.org_id == log.org_id))
    assert any("entries up to 3 were removed before their" in each for each in log.findings())


@pytest.mark.parametrize(
    "forged",
    [
        {"heads": 5},
        {"heads": [5]},
        {"heads": [{}]},
        {"heads": [{"chain": [], "seq": "x", "hash": 1, "signature": ""}]},
        {"number": True},
        {"number": -5},
        {"time": 5},
        {"previous": {}},
        {"public_key": 5},
        {"signature": "ünïcode"},
    ],
)
def test_a_record_of_any_content_is_a_finding(log: Log, forged: dict[str, Any]) -> None:
    log.write(6)
    (file,) = log.folder.glob("*.ndjson")
    first, second, third = file.read_text().splitlines(keepends=True)
    line = orjson.dumps(json.loads(second) | forged, option=orjson.OPT_SORT_KEYS).decode()
    file.write_text(f"{first}{line}\n{third}")
    found = log.findings()
    assert any("changed" in each for each in found), found
    assert not any("has another hash" in each for each in found), found


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("detail", "'{'"),
        ("detail", "'[1e999]'"),
        ("detail", "'{\"a\": 123456789012345678901234567890}'"),
        ("detail", "'\"\\ud800\"'"),
        ("created_at", "'yesterday'"),
        ("created_at", "9e18"),
        ("action", "x'ff'"),
        ("hash", "5"),
        ("hash", "NULL"),
    ],
)
def test_what_cannot_be_read_is_a_finding_and_holds_up_nobody_else(
    log: Log, column: str, value: str
) -> None:
    if log.stage.database.dialect == "postgresql":
        pytest.skip("on PostgreSQL each statement sees to the types")
    log.write(6)
    other = another(log)
    with log.stage.database.write() as db:
        db.execute(
            text(f"UPDATE audit SET {column} = {value} WHERE seq = 3 AND org_id = :o"),
            {"o": log.org_id},
        )
    found = log.findings(whole=True)
    assert any("changed" in each or "removed" in each for each in found), found
    assert all(each.startswith((log.org_id, "log ")) for each in found), found
    assert other.findings() == []


@pytest.mark.parametrize("detail", ["'{'", "'{\"a\": 123456789012345678901234567890}'"])
def test_an_entry_that_cannot_be_hashed_holds_up_no_other_organization(
    log: Log, detail: str
) -> None:
    if log.stage.database.dialect == "postgresql":
        pytest.skip("on PostgreSQL each statement sees to the types")
    log.write(6)
    other = another(log)
    for each in (log, other):
        each.append()
    with log.stage.database.write() as db:
        db.execute(
            text(f"UPDATE audit SET detail = {detail} WHERE seq IS NULL AND org_id = :o"),
            {"o": log.org_id},
        )
    log.run("audit.seal")
    assert (other.verified().unsealed, other.findings()) == (0, [])


def test_other_files_in_the_folder_of_the_log_are_in_nobodys_way(log: Log) -> None:
    log.write(4)
    before = list(lines_in(log.folder))
    for name in ("x1", "x2", "notes.txt"):
        (log.folder / name).write_text("mine\n")
    (log.folder / "y").mkdir()
    log.run("audit.publish")
    assert list(lines_in(log.folder)) == before
    log.append()
    log.run("audit.seal")
    log.run("audit.publish")
    assert len(list(lines_in(log.folder))) == len(before) + 1
    assert log.findings() == []


def test_a_clock_that_was_ahead_leaves_the_log_in_order(log: Log) -> None:
    kept = LogFolder(log.folder)
    records: list[AuditPublication] = []
    for number, year in enumerate((2026, 9999, 2026, 2027), 1):
        at = datetime(year, 12, 31, tzinfo=UTC)
        records.insert(
            0, AuditPublication(number=number, hash="", line=f"{number}", published_at=at)
        )
        records[0].hash = audit_records.hash_of(records[0].line)
        assert kept.keep(records) == 1
    assert list(lines_in(log.folder)) == ["1", "2", "3", "4"]


def test_the_file_of_a_month_is_not_read_for_each_record(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.write(4)
    (file,) = log.folder.glob("*.ndjson")
    half = '{"half":' + "x" * 200_000
    with file.open("a") as opened:
        opened.write(half)
    log.append()
    log.run("audit.seal")
    log.run("audit.publish")
    assert half not in file.read_text()
    assert log.findings() == []


def test_a_log_that_cannot_be_forgotten_yet_keeps_no_others(log: Log) -> None:
    """One whose first entry is of a clock that was ahead."""
    log.write(6)
    other = another(log)
    with log.stage.database.write() as db:
        ahead = "aud_7" + new("aud_")[5:]
        db.execute(
            text("UPDATE audit SET id = :i WHERE seq = 1 AND org_id = :o"),
            {"i": ahead, "o": log.org_id},
        )
    with log.stage.database.write() as db:
        moment = log.stage.database.now(db)
        gone = sum(audit_chain.forget_old(db, moment.replace(year=2099), 2) for _ in range(9))
    assert gone == 6
    assert other.verified().entries == 0


def test_an_organization_that_is_not_there_is_not_right(log: Log) -> None:
    log.write(3)
    key = audit_records.encoded(log.stage.services.signer.public_key)
    found = audit_verify.database(log.stage.database, new("org_"), log.folder, key, 400)
    assert any("nothing of it was checked" in each for each in found.findings)
