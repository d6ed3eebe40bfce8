"""MariaDB's binary log: on where it is archived, and kept for as long as a crash needs it."""

import secrets
import struct
from dataclasses import replace
from pathlib import Path

import pymysql
import pytest
from ulid import ULID

from cell.engines.mysql import binary_log, log_replay
from cell.engines.mysql.replayed_events import ReplayedEvents
from cell.layout import Layout
from cell.runtime import engine_files
from contract_tests.engines.conftest import UID, Subject
from contract_tests.engines.mysql_sessions import on_mariadb, rows
from contract_tests.engines.test_mysql_snapshots import Writer


def restart(subject: Subject, *, archived: bool) -> None:
    if subject.process is not None:
        subject.stop()
    subject.spec = replace(subject.spec, continuous_archiving=archived)
    subject.start()


def logs(subject: Subject) -> bool:
    return bool(rows(subject, "SELECT @@GLOBAL.log_bin")[0][0])


@pytest.mark.nightly
@on_mariadb
def test_it_is_on_where_it_is_archived_and_gone_where_it_is_not(running: Subject) -> None:
    restart(running, archived=False)
    assert not logs(running)
    restart(running, archived=True)
    assert logs(running)
    running.speaker.make(running.site, running.login)
    restart(running, archived=False)
    assert not logs(running)
    assert engine_files.find(running.site.data / binary_log.FOLDER) is None


@pytest.mark.nightly
@on_mariadb
def test_after_a_crash_the_data_is_mended_by_it_once_more(
    running: Subject, layout: Layout, tmp_path: Path
) -> None:
    """Else the server refuses to start with a transaction of which only the log knows the end."""
    restart(running, archived=True)
    running.speaker.make(running.site, running.login)
    writer = Writer(running)
    writer.wait_for(200)
    running.kill()
    acknowledged = writer.end()
    target = tmp_path / "copy"
    copying = running.driver.snapshot(running.site, None, running.login, target)
    running.run(copying)
    restart(running, archived=False)
    assert logs(running), "it is needed"
    assert len(running.speaker.read(running.site, running.login)) in range(
        acknowledged, acknowledged + 2
    )
    restart(running, archived=False)
    assert not logs(running)
    restored(running, layout, target, acknowledged)


def restored(subject: Subject, layout: Layout, target: Path, acknowledged: int) -> None:
    """Another site starts with what was copied of a server that had been killed."""
    subject.stop()
    site = layout.site(f"inst_{ULID()}", UID + 1)
    other = replace(subject, site=site, process=None)
    other.site.make(subject.host.owner(other.site))
    other.accept(subject.login)
    other.run(other.driver.restore(other.site, target))
    other.run(other.driver.provision(other.site, other.spec))
    other.start()
    assert len(other.speaker.read(other.site, other.login)) >= acknowledged
    other.stop()


@pytest.mark.nightly
@on_mariadb
def test_what_the_cell_changes_is_not_in_it(running: Subject) -> None:
    """No hash of a password leaves the instance, and none comes back with a moment."""
    restart(running, archived=True)
    running.accept(running.login, running.new_login())
    running.accept(running.login)
    rows(running, "CREATE TABLE owned (n INTEGER)")
    there = binary_log.files(running.site)
    content = b"".join(engine_files.read(path, 2**24) for path in there.values())
    assert b"CREATE TABLE owned" in content
    for secret in (b"global_priv", b"mysql_native_password", b"menagerie_", b"ALTER USER"):
        assert secret not in content


REFUSED = [
    "SET SESSION sql_log_bin = OFF",
    "SET SESSION binlog_format = STATEMENT",
    "SET SESSION binlog_row_image = FULL",
    "SET SESSION server_id = 2",
    "SET SESSION timestamp = 4102444800",
    "SET SESSION gtid_seq_no = 1",
    "PURGE BINARY LOGS BEFORE NOW()",
    "FLUSH BINARY LOGS",
    "RESET MASTER",
    "SHOW BINARY LOGS",
    "SHOW BINLOG EVENTS",
    "BINLOG 'AAAA'",
    "CHANGE MASTER TO MASTER_HOST = 'x'",
    "START SLAVE",
]


@on_mariadb
def test_its_owner_has_no_hold_on_it(running: Subject) -> None:
    restart(running, archived=True)
    for statement in REFUSED:
        with pytest.raises(pymysql.err.OperationalError, match=r"Access denied|secure-timestamp"):
            rows(running, statement)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("opened", [b"'\\", b'"\\', b"`", b"/*", b"/*!", b"*/", b"#", b"-- "])
def test_a_text_that_is_not_closed_takes_no_longer_than_another(opened: bytes) -> None:
    """All of the cell waits while it is looked at."""
    statement = b"CREATE EVENT e " + opened * (64_000 // len(opened))
    for _ in range(20):
        assert statuses(statement) == {("app", "e"): "ENABLED"}


def statuses(*statements: bytes) -> dict[tuple[str, str], str]:
    """As a log with these says, of the schema app."""
    found = ReplayedEvents()
    for each in statements:
        body = struct.pack("<IIBHH", 0, 0, 3, 0, 0) + b"app\0" + each + bytes(4)
        found.read(binary_log.MAGIC + event(9, 2, body), 0)
    for schema, words in found._changes:
        found._note(schema, words)
    return found._known


@pytest.mark.parametrize(
    ("statement", "status"),
    [
        (b"ALTER EVENT e /* disable */ ENABLE", "ENABLED"),
        (b"ALTER EVENT e -- don't disable\n ENABLE", "ENABLED"),
        (b"ALTER EVENT e # disable\n ENABLE COMMENT 'disable'", "ENABLED"),
        (b"ALTER /* it's */ EVENT `e` /*! DISABLE */", "DISABLED"),
        (b"ALTER EVENT e /*M!100100 DISABLE */", "DISABLED"),
        (b"ALTER EVENT e ENABLE /*!50720 DISABLE */", "ENABLED"),
        (b"ALTER EVENT e ENABLE /*! /*! DISABLE */", "ENABLED"),
        (b"/*!50106 CREATE*/ /*!50106 EVENT `e` ON SCHEDULE EVERY 1 DAY DISABLE DO */", "DISABLED"),
        (b"ALTER EVENT e DISABLE ON SLAVE", "SLAVESIDE_DISABLED"),
        (b"ALTER EVENT e COMMENT 'it''s \\' ENABLE'", "DISABLED"),
    ],
)
def test_words_of_comments_and_texts_are_none(statement: bytes, status: str) -> None:
    created = b"CREATE EVENT e ON SCHEDULE EVERY 1 DAY DISABLE DO SELECT 1"
    assert statuses(created, statement) == {("app", "e"): status}


def test_a_log_is_cut_before_the_second_and_after_its_last_whole_event(tmp_path: Path) -> None:
    path = tmp_path / "log"
    group = [event(10, binary_log.GTID), event(10, 2), event(11, binary_log.GTID), event(11, 2)]
    content = binary_log.MAGIC + event(9, 15) + b"".join(group)
    torn = event(11, 2, secrets.token_bytes(40))[:-1]
    for at, kept, is_cut in (
        (12, len(content), False),
        (11, len(content) - 58, True),
        (10, 33, True),
    ):
        path.write_bytes(content + torn)
        assert log_replay.cut(path, at) == is_cut
        assert path.read_bytes() == content[:kept]
    path.write_bytes(b"")
    assert not log_replay.cut(path, 10)


def event(at: int, kind: int, body: bytes = b"0123456789") -> bytes:
    length = binary_log.EVENT.size + len(body)
    return binary_log.EVENT.pack(at, kind, 1, length, 0, 0) + body
