"""`menagerie audit verify`: the audit log checked offline, in the database or in an export."""

import csv
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import orjson
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from control.events import audit_csv, audit_log_check, audit_records, spreadsheet_cells
from control.events.audit_checks import ChainCheck, KnownHead, signed
from control.events.audit_log_check import CheckedLog
from control.events.audit_records import hash_of
from menagerie import keys
from menagerie.audit_logs import FOLDER, lines_in
from menagerie.errors import SettingsError
from menagerie.settings import load
from storage import identifiers
from storage.database import Database, now
from storage.events import audit, audit_chain, audit_publications
from storage.events.audit import AuditEntry
from storage.events.audit_chain import NOTHING, AuditHead

WRITTEN_WITHIN_S: Final = 2.0
"""So long is waited for records that the database has and the end of the log has not."""
_PAGE: Final = 1_000
_BEFORE_ALL: Final = -(2**62)
_CELL_MAX: Final = 1 << 30


@dataclass
class Verified:
    """What was looked at, and what is wrong with it."""

    findings: list[str] = field(default_factory=list)
    entries: int = 0
    chains: int = 0
    unsealed: int = 0
    heads: int = 0
    records: int | None = None
    """Of the log of published heads; None where it was not looked at."""

    def add(self, check: ChainCheck) -> None:
        self.findings += check.findings
        self.entries += check.entries
        self.heads += check.compared
        self.chains += 1

    def text(self) -> str:
        """For a person."""
        lines = [*self.findings, _counted(self.entries, "entry", "entries") + f" in {self.chains}"]
        lines[-1] += f" {'log' if self.chains == 1 else 'logs'} checked"
        lines[-1] += f", {_counted(self.heads, 'published head', 'published heads')} compared"
        if self.records is not None:
            lines[-1] += f", {_counted(self.records, 'record', 'records')} of the log checked"
        if self.unsealed:
            lines.append(
                f"{_counted(self.unsealed, 'entry has', 'entries have')} no number yet: checked"
                " once they have one, within seconds while a worker runs"
            )
        wrong = _counted(len(self.findings), "finding", "findings")
        return "\n".join([*lines, f"{wrong}, see above" if self.findings else "all of it is right"])


def database(
    checked: Database, org_id: str | None, log: Path | None, public_key: str, kept_days: int
) -> Verified:
    """All logs, or that of one organization; `log` is the file or folder of published heads."""
    found = Verified()
    with _at_one_moment(checked) as db:
        records = None if log is None else _log(db, log, public_key, found)
        names = [org_id] if org_id else _chains(db, () if records is None else records.heads)
        for chain in names:
            _check_chain(db, found, chain, records, public_key)
            if records is not None:
                _look_for_early_removal(db, found, records.heads.get(chain, ()), kept_days, chain)
    return found


def export(files: Collection[Path], org_id: str, heads: Path | None) -> Verified:
    """Files of `audit export` that follow each other, and the heads that an owner kept."""
    found = Verified()
    rows = _rows(files, org_id)
    numbered = [row for row in rows if row["seq"] is not None]
    found.unsealed = len(rows) - len(numbered)
    if not numbered:
        raise SettingsError(
            "no entry of the export has a number yet: entries get theirs within seconds, so export"
            " the log again; an organization without any entry has nothing to verify"
        )
    begin = min(row["seq"] for row in numbered)
    known = [] if heads is None else _known(heads, org_id, found)
    check = ChainCheck(org_id, begin, NOTHING if begin == 1 else None, known)
    for row in sorted(numbered, key=lambda each: each["seq"]):
        check.take(row, row["hash"])
    check.end_at_last()
    found.add(check)
    return found


@contextmanager
def _at_one_moment(checked: Database) -> Iterator[Session]:
    """The service may be running, and may seal and forget entries meanwhile."""
    with checked.read() as db:
        if checked.dialect == "postgresql":
            db.connection(execution_options={"isolation_level": "REPEATABLE READ"})
        yield db


def _log(db: Session, path: Path, public_key: str, found: Verified) -> CheckedLog:
    try:
        lines = lines_in(path) if path.exists() else ()
        records = audit_log_check.check(lines, str(path), public_key)
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from error
    published = {each.number: each.hash for each in audit_publications.newest_first(db)}
    late = _written_late(path, records, published)
    known = {number: hashed for number, hashed in published.items() if number not in late}
    audit_log_check.compare(records, known)
    found.findings += records.findings
    found.records = records.records
    return records


def _written_late(path: Path, log: CheckedLog, published: Mapping[int, str]) -> set[int]:
    """The newest records, which the log has by now and had not when it was read.

    A record is committed before it is written to the log, so it may have been under way.
    """
    ends_at, last = time.monotonic() + WRITTEN_WITHIN_S, max(log.hashes, default=0)
    newest = {number: hashed for number, hashed in published.items() if number > last}
    while newest:
        known = {hash_of(line) for line in (lines_in(path) if path.exists() else ())}
        late = {number for number, hashed in newest.items() if hashed in known}
        if len(late) == len(newest) or time.monotonic() > ends_at:
            return late
        time.sleep(WRITTEN_WITHIN_S / 20)
    return set()


def _chains(db: Session, published: Iterable[str]) -> list[str]:
    heads = db.scalars(select(AuditHead.chain))
    with_entries = db.scalars(
        select(AuditEntry.org_id).where(AuditEntry.seq.is_not(None)).distinct()
    )
    return sorted({*heads, *(audit_chain.chain_of(each) for each in with_entries), *published})


def _check_chain(
    db: Session, found: Verified, chain: str, log: CheckedLog | None, public_key: str
) -> None:
    org_id = None if chain == audit_chain.WITHOUT_ORG else chain
    head = db.get(AuditHead, chain)
    begin, before = (1, NOTHING) if head is None else (head.kept_from, head.hash_before)
    check = ChainCheck(chain, begin, before, _published(db, found, chain, log, public_key))
    try:
        _take_all(db, check, org_id)
    except (ValueError, TypeError, ArithmeticError) as error:
        # Neither the service nor an export can read it any more.
        check.say(f"{check.next_one} or one after it cannot be read: it was changed ({error})")
    else:
        _compare_with_head(check, head)
    rows = select(func.count()).select_from(AuditEntry).where(AuditEntry.org_id == org_id)
    unsealed = db.scalar(rows.where(AuditEntry.seq.is_(None))) or 0
    if head is None and not (check.entries or check.findings or unsealed):
        check.say("it has no entries and no head, so nothing of it was checked")
    found.unsealed += unsealed
    found.add(check)


def _take_all(db: Session, check: ChainCheck, org_id: str | None) -> None:
    after = _BEFORE_ALL
    while entries := audit.sealed_after(db, org_id, after, _PAGE):
        for entry in entries:
            check.take(audit_chain.members_of(entry), entry.hash)
        after = entries[-1].seq or 0
        db.expunge_all()


def _compare_with_head(check: ChainCheck, head: AuditHead | None) -> None:
    if head is not None:
        check.end(head.seq, head.hash)
    elif check.entries:
        check.say("the head is missing: it was removed")
    else:
        check.end_at_last()


def _published(
    db: Session, found: Verified, chain: str, log: CheckedLog | None, public_key: str
) -> list[KnownHead]:
    """Of the database, whose signatures are looked at; and of the log, whose records are signed."""
    heads = [
        {
            **{name: getattr(each, name) for name in ("chain", "seq", "hash", "signature")},
            "time": audit_chain.written(each.published_at),
            "public_key": each.public_key,
        }
        for each in audit_publications.of_chain(db, chain)
    ]
    known = signed(heads, "in the database", found.findings, public_key)
    return known if log is None else [*known, *log.heads.get(chain, ())]


def _look_for_early_removal(
    db: Session, found: Verified, heads: Iterable[KnownHead], kept_days: int, chain: str
) -> None:
    """An entry is younger than the published head before it, and than its organization."""
    head = db.get(AuditHead, chain)
    oldest = audit_chain.written(now(db) - timedelta(days=kept_days - 1))
    made_at = identifiers.time_of(chain)
    after, gone = audit_chain.written(made_at) if made_at else "", 0
    for each in sorted(heads, key=lambda each: each.seq):
        if head is not None and each.seq < head.kept_from and after > oldest:
            gone = each.seq
        after = each.time
    if gone:
        found.findings.append(
            f"{chain}: entries up to {gone} were removed before their {kept_days} days were over"
        )


def _rows(files: Iterable[Path], org_id: str) -> list[dict[str, Any]]:
    # An entry's detail has no limit of its own; that of the module is for files of strangers.
    csv.field_size_limit(_CELL_MAX)
    # What two files have is there once, unless it differs.
    found: dict[str, dict[str, Any]] = {}
    for path in files:
        try:
            with path.open(encoding="utf-8", newline="") as opened:
                reader = csv.DictReader(opened)
                if not set(audit_csv.COLUMNS).issubset(reader.fieldnames or ()):
                    raise SettingsError(f"{path} is no export of the audit log with seq and hash")
                rows = [_members(row, org_id) for row in reader]
        except (OSError, ValueError, csv.Error) as error:
            raise SettingsError(f"{path} cannot be read: {error}") from error
        found.update({orjson.dumps(row).decode(): row for row in rows})
    return list(found.values())


def _members(row: dict[str, str], org_id: str) -> dict[str, Any]:
    given = {name: spreadsheet_cells.unescaped(row[name] or "") for name in audit_csv.COLUMNS}
    if datetime.fromisoformat(given["time"]).tzinfo is None:
        raise ValueError(f"the time {given['time']} has no zone")
    seq = int(given["seq"]) if given["seq"] else None
    return {**given, "detail": orjson.loads(given["detail"]), "seq": seq, "org_id": org_id}


def _known(path: Path, org_id: str, found: Verified) -> list[KnownHead]:
    """As `audit heads` shows them, one page or several."""
    try:
        told = orjson.loads(path.read_bytes())
        items = told["items"] if isinstance(told, dict) else told
        own = [each for each in items if each["chain"] == org_id]
        # Whoever kept heads for long has the key, too; all must be signed with the same.
        return signed(own, str(path), found.findings, own[-1]["public_key"] if own else "")
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise SettingsError(f"{path} is no list of published heads: {error}") from error


def _counted(number: int, one: str, several: str) -> str:
    return f"{number:,} {one if number == 1 else several}"


def of_installation(home: Path | None, org_id: str | None, log: Path | None) -> Verified:
    """Of the database and the log that the settings name. Raises SettingsError."""
    settings = load(home=home)
    if log is not None and not log.exists():
        raise SettingsError(f"{log} is not there: pass the file or folder of the signed log")
    place = log or settings.root / FOLDER
    if not (settings.root / "keys" / "signing.key").exists():
        raise SettingsError(
            f"{settings.root} is not the home of an installation: pass it with --home"
        )
    key = audit_records.encoded(keys.public_key(settings.root))
    return database(Database(settings.database), org_id, place, key, settings.audit_kept_days)
