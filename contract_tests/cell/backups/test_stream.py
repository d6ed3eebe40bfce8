"""The format of backups: what was written is read again, and whatever was changed is found."""

import hashlib
import io
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from cell.backups import reading, sealed_objects, writing
from cell.backups.keys import Recovery, RecoveryError, unwrap
from cell.backups.manifest import BackupName, Manifest, Part, StoredContent, Verification
from cell.backups.sealed_objects import FRAME_BYTES, DamagedError, clear_text, seal, unseal
from cell.backups.store import Store

KEY = bytes(range(32))
OTHER_KEY = bytes(32)
NAME = BackupName("inst_01JD0000000000000000000000", "bkp_01JD0000000000000000000000")
OTHER = BackupName(NAME.instance_id, "bkp_01JD0000000000000000000001")
# Where a frame ends, and beside it.
LENGTHS = st.sampled_from([0, 1, FRAME_BYTES - 1, FRAME_BYTES, FRAME_BYTES + 1, 2 * FRAME_BYTES])


def pattern(length: int) -> bytes:
    return (hashlib.sha256(str(length).encode()).digest() * (length // 32 + 1))[:length]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    (tmp_path / "store").mkdir()
    return Store((tmp_path / "store").as_uri())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "data"
    (made / "inner" / "empty").mkdir(parents=True)
    (made / "one").write_bytes(b"1")
    (made / "nothing").write_bytes(b"")
    (made / "inner" / "two ü\n").write_bytes(pattern(3 * FRAME_BYTES))
    return made


def described(content: StoredContent, name: BackupName = NAME) -> Manifest:
    return Manifest(
        *(name.instance_id, name.backup_id, "manual", "duckdb", "1.5", 3, 1.0, 2.0, content),
        extensions=("vector",),
        verification=Verification("restored", 1.5, "0" * 64),
    )


def tree(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


@settings(max_examples=40, deadline=None)
@given(content=st.binary(max_size=200) | LENGTHS.map(pattern), clear=st.binary(max_size=100))
def test_what_is_sealed_is_opened(content: bytes, clear: bytes) -> None:
    sealed = seal(KEY, "a/b", content, clear)
    assert unseal(KEY, "a/b", sealed) == content
    assert clear_text(sealed) == clear
    assert seal(KEY, "a/b", content, clear) != sealed, "a nonce was used twice with one key"
    if len(content) > 8:
        assert content not in sealed[sealed_objects.SALT_BYTES + 12 + len(clear) :]


@settings(max_examples=60, deadline=None)
@given(data=st.data(), content=st.binary(max_size=100) | LENGTHS.map(pattern))
def test_whatever_is_changed_is_found(data: st.DataObject, content: bytes) -> None:
    sealed = bytearray(seal(KEY, "a/b", content, b"clear"))
    place = data.draw(st.integers(0, len(sealed) - 1))
    sealed[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(DamagedError):
        unseal(KEY, "a/b", bytes(sealed))


@settings(max_examples=30, deadline=None)
@given(data=st.data(), length=LENGTHS)
def test_whatever_is_cut_off_or_added_is_found(data: st.DataObject, length: int) -> None:
    sealed = seal(KEY, "a/b", pattern(length))
    step = FRAME_BYTES + sealed_objects.TAG_BYTES
    kept = data.draw(st.integers(0, len(sealed) - 1) | st.just(max(0, len(sealed) - step)))
    for wrong in (sealed[:kept], sealed + b"\0", sealed + sealed[-step:]):
        if wrong != sealed:
            with pytest.raises(DamagedError):
                unseal(KEY, "a/b", wrong)


def test_frames_cannot_change_places() -> None:
    sealed = seal(KEY, "a/b", pattern(3 * FRAME_BYTES))
    step = FRAME_BYTES + sealed_objects.TAG_BYTES
    head = len(sealed) - 3 * step
    frames = [sealed[head + n * step : head + (n + 1) * step] for n in range(3)]
    for order in ((1, 0, 2), (0, 2, 1), (0, 1), (0, 0, 1, 2), (2,)):
        with pytest.raises(DamagedError):
            unseal(KEY, "a/b", sealed[:head] + b"".join(frames[n] for n in order))


def test_it_is_opened_under_its_own_name_with_its_own_key_only() -> None:
    sealed = seal(KEY, NAME.part(0), b"content")
    for key, name in ((OTHER_KEY, NAME.part(0)), (KEY, NAME.part(1)), (KEY, OTHER.part(0))):
        with pytest.raises(DamagedError):
            unseal(key, name, sealed)


def test_a_folder_is_written_and_read(store: Store, folder: Path, tmp_path: Path) -> None:
    done: list[int] = []
    content = writing.write(store, KEY, NAME, folder, done.append)
    assert sum(done) == content.stream_bytes
    target = tmp_path / "read"
    reading.unpack(store, KEY, described(content), target)
    assert tree(target) == tree(folder)
    assert all(path.stat().st_mode & 0o077 == 0 for path in target.rglob("*"))
    reading.check(store, KEY, described(content))


def test_a_link_is_not_followed(store: Store, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "away").symlink_to(tmp_path)
    reading.unpack(store, KEY, described(writing.write(store, KEY, NAME, folder)), tmp_path / "to")
    assert not {"link", "away"} & tree(tmp_path / "to").keys()


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "PART_BYTES", 1000)


def incompressible(folder: Path, length: int = 5000) -> None:
    folder.mkdir()
    blocks = (hashlib.sha256(bytes([n % 256, n // 256])).digest() for n in range(length // 32))
    (folder / "file").write_bytes(b"".join(blocks))


@pytest.mark.usefixtures("small_parts")
def test_every_part_is_what_was_written(store: Store, tmp_path: Path) -> None:
    incompressible(tmp_path / "data")
    content = writing.write(store, KEY, NAME, tmp_path / "data")
    found = described(content)
    names = [NAME.part(n) for n in range(len(content.parts))]
    assert len(names) >= 4
    assert {each.name for each in store.list(NAME.prefix)} == set(names)
    before = {name: store.get(name, 2000) for name in names}
    other = writing.write(store, KEY, OTHER, tmp_path / "data")
    again = writing.write(store, KEY, NAME, tmp_path / "data")
    wrong: list[dict[str, bytes]] = [
        {names[1]: before[names[2]], names[2]: before[names[1]]},
        {names[1]: store.get(OTHER.part(1), 2000)},
        # Of an attempt before, and so under the same name with the same key.
        {names[1]: store.get(names[1], 2000)},
        {names[1]: before[names[1]][:-1]},
        {names[1]: before[names[1]] + b"more"},
        *({name: flipped(content)} for name, content in before.items()),
    ]
    assert len(other.parts) == len(again.parts) == len(names)
    for changes in wrong:
        for name, stored in (before | changes).items():
            store.put(name, stored)
        refused(store, found, tmp_path)
    for name, stored in before.items():
        store.put(name, stored)
    store.remove([names[-1]])
    refused(store, found, tmp_path)
    store.put(names[-1], before[names[-1]])
    reading.check(store, KEY, found)


def flipped(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def refused(store: Store, found: Manifest, tmp_path: Path) -> None:
    with pytest.raises(DamagedError):
        reading.check(store, KEY, found)
    # As a restore reads it, which does not count the digest of the content.
    shutil.rmtree(tmp_path / "refused", ignore_errors=True)
    with pytest.raises(DamagedError):
        reading.unpack(store, KEY, found, tmp_path / "refused", verified=True)


def stored(store: Store, stream: bytes) -> Manifest:
    """As who has the key would write it."""
    sealed = seal(KEY, NAME.part(0), zstandard.compress(stream))
    store.put(NAME.part(0), sealed)
    part = Part(len(sealed), hashlib.sha256(sealed).hexdigest())
    return described(StoredContent(len(stream), hashlib.sha256(stream).hexdigest(), (part,)))


def archive(name: str, **changes: Any) -> bytes:
    file = io.BytesIO()
    with tarfile.TarFile(fileobj=file, mode="w") as tar:
        member = tarfile.TarInfo(name)
        for attribute, value in changes.items():
            setattr(member, attribute, value)
        tar.addfile(member, io.BytesIO(bytes(member.size)))
    return file.getvalue()


def within(content: bytes, name: str = "all.tar") -> bytes:
    file = io.BytesIO()
    with tarfile.TarFile(fileobj=file, mode="w") as tar:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content))
        note = tarfile.TarInfo("note")
        note.size = 4
        tar.addfile(note, io.BytesIO(b"last"))
    return file.getvalue()


def test_an_archive_in_it_is_unpacked_at_once(store: Store, tmp_path: Path) -> None:
    """And no other one; what lies behind it is read as well."""
    inner = archive("a file", size=FRAME_BYTES)
    found = stored(store, within(inner))
    reading.unpack(store, KEY, found, tmp_path / "to", archive="all.tar")
    wanted = {"all": None, "all/a file": bytes(FRAME_BYTES), "note": b"last"}
    assert tree(tmp_path / "to") == wanted
    reading.unpack(store, KEY, found, tmp_path / "packed", archive="other.tar")
    assert tree(tmp_path / "packed") == {"all.tar": inner, "note": b"last"}


def test_an_archive_in_it_that_is_cut_off_is_damaged(store: Store, tmp_path: Path) -> None:
    cut = archive("a file", size=FRAME_BYTES)[:FRAME_BYTES]
    with pytest.raises(DamagedError, match="cannot be read"):
        reading.unpack(store, KEY, stored(store, within(cut)), tmp_path / "to", archive="all.tar")


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("../outside", {"size": 3}),
        ("a/../../outside", {"size": 3}),
        ("/outside", {"size": 3}),
        ("link", {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}),
        ("link", {"type": tarfile.LNKTYPE, "linkname": "/etc/passwd"}),
        ("pipe", {"type": tarfile.FIFOTYPE}),
        ("disk", {"type": tarfile.BLKTYPE}),
        ("hole", {"pax_headers": {"GNU.sparse.map": "0,0", "GNU.sparse.size": "1000000000"}}),
    ],
)
def test_nothing_is_written_outside(
    store: Store, tmp_path: Path, name: str, changes: dict[str, Any], packed: bool
) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    content = archive(name, **changes)
    found = stored(store, within(content) if packed else content)
    with pytest.raises(DamagedError, match="unexpected entry"):
        reading.unpack(store, KEY, found, inner / "to", archive="all.tar")
    assert not (tmp_path / "outside").exists()
    assert not (inner / "outside").exists()
    assert tree(inner / "to") == ({"all": None} if packed else {})


def test_an_archive_that_cannot_be_read_is_damaged(store: Store, tmp_path: Path) -> None:
    odd = archive("odd", pax_headers={"GNU.sparse.map": "x", "GNU.sparse.size": "y"})
    with pytest.raises(DamagedError, match="cannot be read"):
        reading.unpack(store, KEY, stored(store, odd), tmp_path / "to")


def test_a_header_that_fills_memory_is_damaged(store: Store, tmp_path: Path) -> None:
    """A name of a megabyte would be read whole before it is looked at."""
    odd = archive("a" * 1_000_000)
    with pytest.raises(DamagedError, match="too long"):
        reading.unpack(store, KEY, stored(store, odd), tmp_path / "to")


@pytest.mark.parametrize("verified", [False, True])
def test_the_length_is_that_of_the_manifest(store: Store, tmp_path: Path, verified: bool) -> None:
    stream = archive("file", size=3)
    found = stored(store, stream)
    longer = replace(found.content, stream_bytes=len(stream) + 1)
    with pytest.raises(DamagedError, match="not what its manifest says"):
        reading.unpack(
            *(store, KEY, replace(found, content=longer), tmp_path / "to"), verified=verified
        )


def test_one_that_is_made_is_compared_by_its_digest(store: Store, tmp_path: Path) -> None:
    """What was damaged before it was compressed is found by this alone."""
    found = stored(store, archive("file", size=3))
    other = replace(found, content=replace(found.content, stream_sha256="0" * 64))
    with pytest.raises(DamagedError, match="not what its manifest says"):
        reading.check(store, KEY, other)
    with pytest.raises(DamagedError, match="not what its manifest says"):
        reading.unpack(store, KEY, other, tmp_path / "to")


@pytest.mark.parametrize("size", ["1", None, -1, 1.5])
def test_sizes_in_a_manifest_are_numbers(size: object) -> None:
    made = described(StoredContent(1, "0" * 64, (Part(cast("int", size), "1" * 64),)))
    with pytest.raises(DamagedError, match="does not say"):
        Manifest.unseal(KEY, NAME, made.seal(KEY, b""))


def test_a_stream_that_is_longer_than_said_ends(store: Store, tmp_path: Path) -> None:
    found = stored(store, archive("zeros", size=10_000_000))
    short = replace(found, content=replace(found.content, stream_bytes=1_000_000))
    with pytest.raises(DamagedError, match="longer"):
        reading.unpack(store, KEY, short, tmp_path / "to")
    written = sum(path.stat().st_size for path in (tmp_path / "to").iterdir())
    assert written < 4_000_000


def test_a_manifest_is_of_its_backup(store: Store) -> None:
    content = StoredContent(1, "0" * 64, (Part(1, "1" * 64),))
    made = described(content)
    sealed = made.seal(KEY, b"wrapped")
    assert Manifest.unseal(KEY, NAME, sealed) == made.stored_as(sealed)
    assert clear_text(sealed) == b"wrapped"
    other = replace(NAME, instance_id="inst_01JD0000000000000000000009")
    for key, name in ((OTHER_KEY, NAME), (KEY, OTHER), (KEY, other)):
        with pytest.raises(DamagedError):
            Manifest.unseal(key, name, sealed)
    lying = seal(KEY, OTHER.manifest, bytes(unseal(KEY, NAME.manifest, sealed)))
    with pytest.raises(DamagedError, match="another"):
        Manifest.unseal(KEY, OTHER, lying)


@pytest.mark.parametrize(
    "said", [b"[", b"[]", b"null", b"{}", b'{"format": 1}', b'{"format": 1, "content": 1}']
)
def test_a_manifest_that_says_something_else_is_damaged(said: bytes) -> None:
    with pytest.raises(DamagedError, match="does not say what a backup is"):
        Manifest.unseal(KEY, NAME, seal(KEY, NAME.manifest, said))


def test_the_recovery_key_opens_what_the_cell_wrapped(tmp_path: Path) -> None:
    recovery = Recovery(tmp_path)
    wrapped = recovery.wrap(KEY)
    identity = (tmp_path / "recovery.key").read_text()
    assert (tmp_path / "recovery.key").stat().st_mode & 0o077 == 0
    assert unwrap(identity, wrapped) == KEY
    assert KEY not in wrapped
    # It may lie elsewhere from then on.
    (tmp_path / "recovery.key").unlink()
    assert unwrap(identity, Recovery(tmp_path).wrap(KEY)) == KEY
    assert not (tmp_path / "recovery.key").exists()
    told = Recovery(tmp_path / "other", (tmp_path / "recovery.pub").read_text().strip())
    assert unwrap(identity, told.wrap(KEY)) == KEY
    with pytest.raises(RecoveryError):
        Recovery(tmp_path, "age1none").wrap(KEY)
    with pytest.raises(RecoveryError):
        unwrap("AGE-SECRET-KEY-1NONE", wrapped)
