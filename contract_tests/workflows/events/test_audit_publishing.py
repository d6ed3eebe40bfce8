"""The audit log is sealed and published by itself; whatever is done to it afterwards is found."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, insert, select, update
from sqlalchemy.orm import Session

from cell.backups.store import Store
from contract_tests.workflows.known import take_turn
from contract_tests.workflows.stage import Killed, Stage
from control.events import audit_records
from control.workflows.events import audit_publishing
from menagerie import audit_verify
from menagerie.audit_logs import LogFolder, LogInStore, lines_in
from storage.access import organizations
from storage.events import audit, audit_chain, audit_publications
from storage.events.audit import AuditEntry
from storage.events.audit_chain import NOTHING, AuditHead
from storage.events.audit_publications import AuditPublication, PublishedHead
from storage.identifiers import new

KEPT_DAYS = 400


@dataclass
class Log:
    """An organization's audit log on a stage whose signed log is in a folder."""

    stage: Stage
    org_id: str
    folder: Path

    def append(self, count: int = 1) -> None:
        with self.stage.database.write() as db:
            for number in range(count):
                told = {"number": number}
                audit.append(db, self.org_id, "test.done", actor_kind="system", detail=told)

    def run(self, kind: str) -> None:
        with self.stage.database.write() as db:
            take_turn(db, kind)
        self.stage.settle()

    def write(self, count: int) -> None:
        """Entries, each sealed and then published."""
        for number in (1, 1, count - 2):
            self.append(number)
            self.run("audit.seal")
            self.run("audit.publish")

    def findings(self, *, whole: bool = False) -> list[str]:
        return self.verified(whole=whole).findings

    def verified(self, *, whole: bool = False) -> audit_verify.Verified:
        key = audit_records.encoded(self.stage.services.signer.public_key)
        org_id = None if whole else self.org_id
        return audit_verify.database(self.stage.database, org_id, self.folder, key, KEPT_DAYS)


def another(log: Log) -> Log:
    with log.stage.database.write() as db:
        made = organizations.create(db, name="Org", slug=new("s").lower(), plan="free").id
    found = Log(log.stage, made, log.folder)
    found.write(6)
    return found


@pytest.fixture
def log(stage: Stage, tmp_path: Path) -> Log:
    folder = tmp_path / "audit-log"
    stage.services = replace(stage.services, audit_logs=(LogFolder(folder),))
    return Log(stage, stage.org_id, folder)


def entry(seq: int) -> Any:
    return AuditEntry.seq == seq


def of(org_id: str) -> Any:
    return update(AuditEntry).where(AuditEntry.org_id == org_id)


def rechain(db: Session, org_id: str) -> None:
    """What somebody does who knows how hashes are made, but has no key to sign heads with."""
    previous, seq = NOTHING, 0
    rows = select(AuditEntry).where(AuditEntry.org_id == org_id).order_by(AuditEntry.seq)
    for one in db.scalars(rows):
        seq = one.seq or 0
        one.hash = previous = audit_chain.hash_of(previous, audit_chain.members_of(one))
    head = db.get_one(AuditHead, org_id)
    head.seq, head.hash = seq, previous


def change(db: Session, org_id: str) -> None:
    db.execute(of(org_id).where(entry(3)).values(action="test.else"))


def change_detail(db: Session, org_id: str) -> None:
    db.execute(of(org_id).where(entry(6)).values(detail={"number": 7}))


def change_and_rechain(db: Session, org_id: str) -> None:
    change(db, org_id)
    rechain(db, org_id)


def drop(db: Session, org_id: str) -> None:
    db.execute(delete(AuditEntry).where(AuditEntry.org_id == org_id, entry(3)))


def drop_and_rechain(db: Session, org_id: str) -> None:
    drop(db, org_id)
    for seq in (4, 5, 6):
        db.execute(of(org_id).where(entry(seq)).values(seq=seq - 1))
    rechain(db, org_id)


def drop_the_last(db: Session, org_id: str) -> None:
    db.execute(delete(AuditEntry).where(AuditEntry.org_id == org_id, entry(6)))


def drop_the_last_and_move_the_head(db: Session, org_id: str) -> None:
    drop_the_last(db, org_id)
    rechain(db, org_id)


def drop_the_first_and_say_they_are_forgotten(db: Session, org_id: str) -> None:
    rows = select(AuditEntry.hash).where(AuditEntry.org_id == org_id, entry(2))
    hashed = db.scalar(rows)
    db.execute(delete(AuditEntry).where(AuditEntry.org_id == org_id, AuditEntry.seq < 3))
    head = db.get_one(AuditHead, org_id)
    head.kept_from, head.hash_before = 3, str(hashed)


def reorder(db: Session, org_id: str) -> None:
    for was, becomes in ((3, -1), (4, 3), (-1, 4)):
        db.execute(of(org_id).where(entry(was)).values(seq=becomes))


def insert_before_all(db: Session, org_id: str) -> None:
    told = {"org_id": org_id, "action": "test.false", "actor_kind": "system"}
    db.execute(insert(AuditEntry).values(id=new("aud_"), seq=0, hash=NOTHING, detail={}, **told))


def insert_between_and_rechain(db: Session, org_id: str) -> None:
    for seq in (6, 5, 4):
        db.execute(of(org_id).where(entry(seq)).values(seq=seq + 1))
    told = {"org_id": org_id, "action": "test.false", "actor_kind": "system"}
    db.execute(insert(AuditEntry).values(id=new("aud_"), seq=4, hash=NOTHING, detail={}, **told))
    rechain(db, org_id)


def replace_the_head(db: Session, org_id: str) -> None:
    db.get_one(AuditHead, org_id).hash = NOTHING


def remove_the_head(db: Session, org_id: str) -> None:
    db.execute(delete(AuditHead).where(AuditHead.chain == org_id))


def replace_a_published_head(db: Session, org_id: str) -> None:
    rows = update(PublishedHead).where(PublishedHead.org_id == org_id, PublishedHead.seq == 2)
    db.execute(rows.values(hash=NOTHING))


def remove_a_record(db: Session, _org_id: str) -> None:
    last = audit_publications.last(db)
    assert last is not None
    db.execute(delete(AuditPublication).where(AuditPublication.number == last.number))


@pytest.mark.parametrize(
    ("tamper", "told"),
    [
        (change, "entry 3 (aud_"),
        (change_detail, "entry 6 (aud_"),
        (change_and_rechain, "entry 6 has another hash than the one published at"),
        (drop, "entry 3 is missing: removed"),
        (drop_and_rechain, "entry 6 was published"),
        (drop_the_last, "entry 6 is missing at the end: removed"),
        (drop_the_last_and_move_the_head, "entry 6 was published"),
        (drop_the_first_and_say_they_are_forgotten, "entries up to 2 were removed before their"),
        (reorder, "entry 3 (aud_"),
        (insert_before_all, "is there before the beginning of the chain: it was inserted"),
        (insert_between_and_rechain, "entry 6 has another hash than the one published at"),
        (replace_the_head, "the head has another hash than entry 6"),
        (remove_the_head, "the head is missing"),
        (replace_a_published_head, "the signature of the head at entry 2 (in the database) is not"),
        (remove_a_record, "is not in the database: the database was restored from an earlier"),
    ],
)
def test_what_is_done_to_the_log_is_found(
    log: Log, tamper: Callable[[Session, str], None], told: str
) -> None:
    log.write(6)
    other = another(log)
    assert log.findings(whole=True) == []
    with log.stage.database.write() as db:
        tamper(db, log.org_id)
    found = log.findings()
    assert any(told in each for each in found), found
    assert all(each.startswith((log.org_id, "log ")) for each in found)
    assert tamper is remove_a_record or other.findings() == []


def test_a_number_given_by_somebody_else_holds_up_no_other_organization(log: Log) -> None:
    log.write(6)
    other = another(log)
    told = {"org_id": log.org_id, "action": "test.false", "actor_kind": "system"}
    with log.stage.database.write() as db:
        db.execute(
            insert(AuditEntry).values(id=new("aud_"), seq=7, hash=NOTHING, detail={}, **told)
        )
    for each in (log, other):
        each.append()
    log.run("audit.seal")
    assert (other.verified().unsealed, other.findings()) == (0, [])
    assert log.verified().unsealed == 1
    assert any("the head is at entry 6" in each for each in log.findings())


def test_what_is_done_to_the_signed_log_is_found(log: Log) -> None:
    log.write(6)
    (file,) = (each for each in log.folder.iterdir() if each.suffix == ".ndjson")
    whole = file.read_text().splitlines(keepends=True)
    assert len(whole) == 3

    def found(lines: list[str]) -> str:
        file.write_text("".join(lines))
        return "\n".join(log.findings())

    assert found(whole) == ""
    assert "before record 3, the records 2 are missing" in found([whole[0], whole[2]])
    assert "record 3 of the database is not there" in found(whole[:2])
    assert "record 1 of the database is not there" in found(whole[1:])
    assert "line 2 is no record" in found([whole[0], "{}\n", whole[2]])
    forged = json.loads(whole[1])
    forged["heads"][0]["hash"] = NOTHING
    line = json.dumps(forged, sort_keys=True, separators=(",", ":")) + "\n"
    told = found([whole[0], line, whole[2]])
    assert "the signature of record 2 is not right" in told
    assert "record 3 does not follow record 2" in told


def test_all_that_is_right_is_counted(log: Log) -> None:
    log.write(6)
    log.append(2)
    with log.stage.database.write() as db:
        audit.append(db, None, "session.create", actor_kind="anonymous")
    log.run("audit.seal")
    log.append(1)
    found = log.verified(whole=True)
    assert found.text().splitlines() == [
        "9 entries in 2 logs checked, 6 published heads compared, 3 records of the log checked",
        "1 entry has no number yet: checked once they have one, within seconds while a worker runs",
        "all of it is right",
    ]


def test_a_head_is_published_once_it_has_moved(log: Log) -> None:
    log.run("audit.publish")
    log.append()
    log.run("audit.seal")
    for _ in range(2):
        log.run("audit.publish")
    with log.stage.database.read() as db:
        (head,) = audit_publications.of_chain(db, log.org_id)
    assert (head.seq, head.public_key) == (
        1,
        audit_records.encoded(log.stage.services.signer.public_key),
    )
    (line,) = lines_in(log.folder)
    assert (json.loads(line)["number"], json.loads(line)["previous"]) == (1, NOTHING)


def test_many_heads_are_published_in_several_records(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_publishing, "HEADS_MAX", 2)
    with log.stage.database.write() as db:
        for number in range(5):
            slug = new("s").lower()
            org = organizations.create(db, name=f"Org {number}", slug=slug, plan="free")
            audit.append(db, org.id, "test.done", actor_kind="system")
    log.run("audit.seal")
    log.run("audit.publish")
    assert [len(json.loads(line)["heads"]) for line in lines_in(log.folder)] == [2, 2, 1]
    assert log.findings(whole=True) == []


def test_a_record_that_was_half_written_is_written_again(log: Log) -> None:
    log.write(4)
    (file,) = (each for each in log.folder.iterdir() if each.suffix == ".ndjson")
    whole = file.read_bytes()
    file.write_bytes(whole[:-20])
    log.run("audit.publish")
    assert file.read_bytes() == whole


def test_a_place_that_cannot_be_written_gets_what_it_missed_later(log: Log) -> None:
    log.folder.write_text("in the way")
    log.write(4)
    log.folder.unlink()
    elsewhere = log.folder.with_name("elsewhere")
    elsewhere.mkdir()
    log.folder.symlink_to(elsewhere)
    log.run("audit.publish")
    assert not list(lines_in(elsewhere))
    log.folder.unlink()
    log.run("audit.publish")
    assert len(list(lines_in(log.folder))) == 3
    assert log.findings() == []


def test_records_are_kept_in_the_store_of_backups_and_none_is_replaced(
    log: Log, tmp_path: Path
) -> None:
    store = Store((tmp_path / "store").as_uri(), makes_folder=True)
    places = (LogFolder(log.folder), LogInStore(store, "audit-log/cell_1/"))
    log.stage.services = replace(log.stage.services, audit_logs=places)
    log.write(4)
    names = sorted(each.name for each in store.list("audit-log/cell_1/"))
    kept = [store.get(name, 10_000).decode() for name in names]
    assert kept == list(lines_in(log.folder))
    log.run("audit.publish")
    assert sorted(each.name for each in store.list("audit-log/cell_1/")) == names
    assert (
        audit_verify.database(
            log.stage.database,
            None,
            tmp_path / "store" / "audit-log" / "cell_1",
            audit_records.encoded(log.stage.services.signer.public_key),
            KEPT_DAYS,
        ).findings
        == []
    )


def test_a_database_that_was_restored_from_an_earlier_backup_is_found(log: Log) -> None:
    """What was published since stays in the signed log, and the log goes on beside it."""
    log.write(4)
    before = list(lines_in(log.folder))
    with log.stage.database.write() as db:
        drop_the_last(db, log.org_id)
        db.execute(delete(AuditEntry).where(AuditEntry.seq > 2))
        head = db.get_one(AuditHead, log.org_id)
        head.seq = head.published_seq = 2
        head.hash = str(db.scalar(select(AuditEntry.hash).where(entry(2))))
        db.execute(delete(PublishedHead).where(PublishedHead.seq > 2))
        db.execute(delete(AuditPublication).where(AuditPublication.number == 3))
    log.append(5)
    log.run("audit.seal")
    log.run("audit.publish")
    after = list(lines_in(log.folder))
    assert after[:-1] == before
    assert json.loads(after[-1])["number"] == 3
    found = log.findings()
    assert any("record 3 of" in each and "is not in the database" in each for each in found)
    assert any("entry 4 has another hash" in each for each in found)


def test_what_is_forgotten_in_time_is_right(log: Log) -> None:
    log.write(6)
    log.stage.pass_time(timedelta(days=KEPT_DAYS + 2).total_seconds())
    log.run("housekeeping")
    with log.stage.database.read() as db:
        assert audit.sealed_after(db, log.org_id, 0, 9) == []
        assert db.scalars(select(PublishedHead)).all() == []
    log.append()
    log.run("audit.seal")
    log.run("audit.publish")
    assert log.findings() == []


def test_killed_while_it_publishes_nothing_is_published_twice(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.append()
    log.run("audit.seal")

    def killed(*_of: Any) -> int:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(LogFolder, "keep", killed)
        with pytest.raises(Killed):
            log.run("audit.publish")
    log.stage.pass_time(60)
    log.stage.settle()
    assert len(list(lines_in(log.folder))) == 1
    assert log.findings() == []
