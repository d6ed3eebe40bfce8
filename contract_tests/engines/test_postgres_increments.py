"""Copies that build on each other: put together, they are the files of the server that was copied.

From version 17 on. Each block that did not change since the last copy began is compared with the
server's own, and what was committed with what a server reads that is started with the copies.
"""

import hashlib
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cell.backups import unpacking
from cell.backups.unpacking import Forwards
from cell.engines.increments import CopyMark, PackedCopy
from cell.engines.postgres import archive, changes, configuration, increments
from cell.engines.postgres.driver import PostgreSQL
from cell.runtime.patches import BLOCK_BYTES
from contract_tests.engines.conftest import Subject
from contract_tests.engines.postgres_changes import Changes, contents
from contract_tests.engines.postgres_sessions import newest, session, superuser

SUMMARIZING = pytest.mark.parametrize(
    "subject", [("postgres", "18"), ("postgres", "17")], indirect=True
)


class Archive(Forwards):
    """A file that a copy is packed into, and unpacked from."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = path.open("w+b")
        self._digest = hashlib.sha256()

    def write(self, content: bytes | memoryview) -> int:
        self._digest.update(content)
        return self._file.write(content)

    def finish(self) -> str:
        self._file.seek(0)
        return self._digest.hexdigest()

    def _take(self, wanted: int) -> memoryview:
        return memoryview(self._file.read(min(wanted, 1 << 20)))


class Copies:
    """Of a server: all of it, and then what has changed, put together in a folder."""

    def __init__(self, subject: Subject, folder: Path) -> None:
        assert isinstance(subject.driver, PostgreSQL)
        self.subject, self.driver = subject, subject.driver
        self.folder = folder
        self.mark: CopyMark | None = None
        self.made: list[PackedCopy] = []

    def take(self, former: CopyMark | None = None) -> PackedCopy:
        output = Archive(self.folder.with_name("archive"))
        given = (self.subject.site, self.subject.process, output, former or self.mark)
        made: PackedCopy = self.subject.run(self.driver.pack_since(*given))
        if made.is_incremental:
            unpacking.unpack_onto(output, self.folder)
        else:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir()
            unpacking.unpack(output, self.folder, None)
        self.mark = made.mark
        self.made.append(made)
        return made

    def check_blocks(self) -> int:
        """Of a server that was stopped. Answers how many are as they were when the copy began."""
        assert self.mark is not None
        live, copied = self.subject.site.data.outside, self.folder / archive.UNPACKED
        same = 0
        for path in live.glob("**/*"):
            name = str(path.relative_to(live))
            if changes.RELATION.fullmatch(name) is None or _is_unlogged(path):
                continue
            theirs = copied / name
            for number, block in enumerate(_blocks(path)):
                if (
                    int.from_bytes(block[4:8], "little")
                    + (int.from_bytes(block[:4], "little") << 32)
                    >= self.mark.position
                ):
                    # Written since: the WAL that comes with the copy has it.
                    continue
                if not any(block) and not theirs.exists():
                    continue
                ours = _block(theirs, number)
                assert ours == block, f"block {number} of {name} is another"
                same += 1
        return same


def _is_unlogged(path: Path) -> bool:
    return path.with_name(f"{path.name.partition('.')[0]}_init").exists()


def _blocks(path: Path) -> Iterator[bytes]:
    content = path.read_bytes()
    for start in range(0, len(content), BLOCK_BYTES):
        yield content[start : start + BLOCK_BYTES]


def _block(path: Path, number: int) -> bytes:
    with path.open("rb") as file:
        file.seek(number * BLOCK_BYTES)
        return file.read(BLOCK_BYTES)


@pytest.fixture
def copies(subject: Subject, tmp_path: Path) -> Copies:
    subject.start()
    return Copies(subject, tmp_path / "copy")


@newest
def test_an_increment_has_what_has_changed(copies: Copies) -> None:
    with session(copies.subject) as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT n, repeat('x', 500) FROM generate_series(1, 9000) n"
        )
        whole = copies.take()
        connection.execute("DELETE FROM t WHERE n = 5000")
        made = copies.take()
    assert (whole.is_incremental, made.is_incremental) == (False, True)
    assert made.snapshot.size_bytes == pytest.approx(whole.snapshot.size_bytes, rel=0.05)
    copies.subject.stop()
    assert copies.check_blocks() > 1000
    copied = sum(path.stat().st_size for path in copies.folder.rglob("*") if path.is_file())
    assert copied == pytest.approx(made.snapshot.size_bytes, rel=0.05)


@pytest.mark.nightly
@SUMMARIZING
def test_what_does_not_follow_from_the_former_copy_is_copied_whole(copies: Copies) -> None:
    with session(copies.subject) as connection:
        connection.execute("CREATE TABLE t AS SELECT n FROM generate_series(1, 9000) n")
        mark = copies.take().mark
        assert mark is not None
        for unfit in (
            # Summaries before that have been removed, or never were.
            replace(mark, position=1),
            replace(mark, position=1 << 50),
            replace(mark, timeline=mark.timeline + 1),
            replace(mark, system_id=f"{int(mark.system_id) + 1}"),
            replace(mark, data_id="0" * 32),
        ):
            assert not copies.take(unfit).is_incremental
        connection.execute("DELETE FROM t WHERE n > 8000")
        assert copies.take(mark).is_incremental is True
    # Nor is the folder another one because its copy was restored elsewhere.
    assert not (copies.folder / archive.UNPACKED / increments.DATA_ID).exists()


@pytest.mark.nightly
@newest
@pytest.mark.parametrize("bound", ["changed", "relations"])
def test_the_names_of_very_many_tables_do_not_fill_the_memory(
    copies: Copies, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    made = [copies.take()]
    with session(copies.subject) as connection:
        for number in range(30):
            connection.execute(f"CREATE TABLE t{number} AS SELECT {number} AS n".encode())
            connection.execute(f"DROP TABLE t{number}".encode())
        if bound == "changed":
            monkeypatch.setattr(changes, "CHANGED_MAX", 25)
        else:
            monkeypatch.setattr(increments, "RELATIONS_MAX", 25)
        made += [copies.take(), copies.take()]
    if bound == "changed":
        assert [each.is_incremental for each in made] == [False, False, True]
    else:
        # The first was noted before.
        assert [each.is_incremental for each in made] == [False, True, False]
        assert [each.mark is None for each in made] == [False, True, True]


@pytest.mark.nightly
@SUMMARIZING
def test_a_server_that_is_behind_or_was_told_otherwise_is_copied_whole(
    copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "SUMMARIZED_WITHIN_S", 0.2)
    subject = copies.subject
    mark = copies.take().mark
    path = subject.site.configuration / configuration.FILE
    with session(subject, superuser(subject)) as connection:
        path.write_bytes(path.read_bytes() + b"summarize_wal = 'off'\n")
        connection.execute("SELECT pg_reload_conf()")
        connection.execute("CREATE TABLE t AS SELECT n FROM generate_series(1, 9000) n")
        time.sleep(1.0)
        made = copies.take(mark)
    assert (made.is_incremental, made.mark) == (False, None)


@pytest.mark.nightly
@pytest.mark.timeout(900)
@SUMMARIZING
@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_changed_is_in_the_increments(copies: Copies, seed: int) -> None:
    subject, drawn = copies.subject, Changes(copies.subject, seed)
    drawn.begin()
    copies.take()
    for number in range(4):
        drawn.make(25)
        if number == 1:
            subject.kill()
            subject.start()
        if number == 2:
            subject.stop()
            subject.start()
        with WrittenMeanwhile(subject):
            copies.take()
        subject.stop()
        assert copies.check_blocks() > 100
        subject.start()
    drawn.make(25)
    ours = login_of(subject)
    committed = contents(str(subject.site.run), ours)
    copies.take()
    assert [each.is_incremental for each in copies.made] == [False, *[True] * 5]
    subject.stop()
    assert copies.check_blocks() > 100
    subject.run(copies.driver.restore(subject.site, copies.folder))
    subject.run(copies.driver.check_files(subject.site))
    subject.start()
    assert contents(str(subject.site.run), ours) == committed


def login_of(subject: Subject) -> dict[str, Any]:
    login = superuser(subject)
    return {"user": login.username, "password": login.password}


class WrittenMeanwhile:
    """Somebody goes on writing."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def _write(self) -> None:
        with session(self._subject, superuser(self._subject)) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS busy (n int, t text)")
            while not self._ended.is_set():
                connection.execute(
                    "INSERT INTO busy SELECT n, repeat('b', 200) FROM generate_series(1, 50) n"
                )
                connection.execute("UPDATE busy SET t = t || 'x' WHERE n % 10 = 0")
                connection.execute("DELETE FROM busy WHERE random() < 0.3")

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
