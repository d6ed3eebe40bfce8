"""Log files come back from the pieces that they were cut into, whenever they were looked at."""

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cell.engines import log_pieces
from cell.engines.driver import EngineError
from cell.engines.wal_sources import LogPlace
from cell.instances import log_reader
from cell.instances.chain_archiver import GapError
from cell.instances.log_reader import LogCursor, LogReader
from cell.layout import Layout, Site
from cell.runtime.engine_files import EnginePath

PIECE_BYTES = 8
START = str(LogCursor(LogPlace(1, 0)))


class Files:
    """An engine that appends to its last file, begins others and removes those before."""

    def __init__(self, site: Site) -> None:
        self.folder = site.data.outside
        self.folder.mkdir(parents=True)
        self.written: dict[int, bytes] = {}
        self.begin(1)

    def begin(self, number: int) -> None:
        self.written[number] = b""
        (self.folder / str(number)).touch()

    def append(self, content: bytes) -> None:
        number = max(self.written)
        self.written[number] += content
        with (self.folder / str(number)).open("ab") as file:
            file.write(content)

    def files(self, site: Site) -> dict[int, EnginePath]:
        found = sorted(int(path.name) for path in self.folder.iterdir())
        return {number: site.data / str(number) for number in found}

    async def open(self, _site: Site) -> LogPlace:
        raise AssertionError

    async def release(self, _site: Site, _before: int) -> None: ...

    async def expire(self, _site: Site, _after_s: int) -> None: ...


class Archive:
    """As the archiver does: whole pieces are noted once they are stored, in that order."""

    def __init__(self, site: Site, source: Files, store: Path) -> None:
        self.site, self.source, self.store = site, source, store
        store.mkdir()
        self.cursor, self.number, self.partial_bytes = LogCursor.parse(START), 0, 0
        self.restart()

    def restart(self) -> None:
        self.reader = LogReader(self.site, self.source, self.site.directory / "wal", 10_000)

    def turn(self, pieces: int, *, killed: bool) -> None:
        """Reads some pieces; `killed` after the last was stored, and before that was noted."""
        for place in range(pieces):
            piece = self.reader.piece(self.cursor, self.partial_bytes)
            packed = log_pieces.pack(piece.place, piece.content)
            if piece.is_to_be_put:
                (self.store / f"{self.number:04}").write_bytes(packed)
            if killed and place == pieces - 1:
                return
            if not piece.is_whole:
                self.partial_bytes = len(piece.content)
                return
            self.cursor = piece.after
            if piece.is_to_be_put:
                self.number, self.partial_bytes = self.number + 1, 0


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reader, "CONTENT_BYTES_MAX", PIECE_BYTES)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return made(tmp_path)


def made(folder: Path) -> Site:
    site = Layout.make(folder / "cell").site("inst_1", 0)
    site.directory.mkdir(parents=True, exist_ok=True)
    return site


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.binary(max_size=3 * PIECE_BYTES)),
        st.tuples(st.just("begin"), st.booleans()),
        st.tuples(st.just("turn"), st.integers(1, 4)),
        st.tuples(st.just("killed"), st.integers(1, 4)),
    ),
    max_size=30,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(steps=STEPS)
def test_what_is_cut_is_what_is_joined(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, object]]
) -> None:
    folder = tmp_path_factory.mktemp("pieces")
    site = made(folder)
    source = Files(site)
    archive = Archive(site, source, folder / "store")
    for step, how in steps:
        if step == "append":
            assert isinstance(how, bytes)
            source.append(how)
        elif step == "begin":
            # The file that is read may be removed, and no other.
            former = max(source.written)
            source.begin(former + 1)
            if how and archive.cursor.place.file == former and archive.partial_bytes:
                (source.folder / str(former)).unlink()
        else:
            assert isinstance(how, int)
            archive.turn(how, killed=step == "killed")
            if step == "killed":
                archive.restart()
    archive.turn(1000, killed=False)
    joined = log_pieces.join(folder / "store", 1)
    found = {number: path.read_bytes() for number, path in joined.items()}
    wanted = dict(source.written)
    if not wanted[max(wanted)]:
        wanted.pop(max(wanted))
    assert found == wanted


@pytest.mark.parametrize("missing", range(3))
def test_a_piece_that_is_missing_is_found(site: Site, tmp_path: Path, missing: int) -> None:
    source = Files(site)
    source.append(random.Random(1).randbytes(PIECE_BYTES * 2 + 1))
    source.begin(2)
    source.append(b"x")
    archive = Archive(site, source, tmp_path / "store")
    archive.turn(100, killed=False)
    (archive.store / f"{missing:04}").unlink()
    if missing == 2:
        joined = log_pieces.join(archive.store, 1)
        assert joined[1].stat().st_size == 2 * PIECE_BYTES, "what comes after it would not do"
        return
    with pytest.raises(EngineError, match="missing"):
        log_pieces.join(archive.store, 1)


@pytest.mark.parametrize(
    "change", ["removed", "shorter", "another", "replaced", "anew", "gone", "gap", "long"]
)
def test_what_cannot_go_on_is_told(site: Site, tmp_path: Path, change: str) -> None:
    source = Files(site)
    source.append(b"12345")
    archive = Archive(site, source, tmp_path / "store")
    archive.turn(1, killed=False)
    archive.cursor = archive.reader.piece(archive.cursor, 0).after
    place = source.folder / "1"
    if change == "removed":
        archive.reader.clear()
        source.begin(2)
        place.unlink()
    elif change == "shorter":
        place.write_bytes(b"1")
    elif change == "another":
        archive.reader.clear()
        (source.folder / "other").write_bytes(b"123456")
        (source.folder / "other").rename(place)
    elif change == "replaced":
        # What is kept of the former is no reason to go on.
        (source.folder / "other").write_bytes(b"123456")
        (source.folder / "other").rename(place)
    elif change == "anew":
        archive.cursor, archive.partial_bytes = LogCursor(LogPlace(2, 0)), 0
        source.begin(2)
        archive.turn(1, killed=False)
        (source.folder / "2").unlink()
    elif change == "gone":
        place.unlink()
    elif change == "gap":
        source.begin(3)
    else:
        source.append(bytes(10_001))
    with pytest.raises(EngineError if change == "gone" else GapError):
        archive.turn(2, killed=False)
