"""What is read from which of two stores, with whose credentials, and what names there mean."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cell.backups import two_stores, variables, writing
from cell.backups.manifest import BackupName, Manifest
from cell.backups.object_copies import Copying, listing
from cell.backups.sealed_objects import DamagedError
from cell.backups.store import MissingError, ReadsObjects, Store, StoreEntry, StoreError
from cell.backups.two_stores import TwoStores
from cell.instances.pools import Pools, share_of

KEY = bytes(range(32))
NAME = "inst_1/bkp_1/part-000000"
OWN = "inst_01JD0000000000000000000000"
PIECES = st.sampled_from(
    ["wal", "wal_1", "bkp_1", "bkp_2", "manifest", "part-000000", "x", "x#1", "..", ""]
)


class Fake(Store):
    """One object, or what is raised in its place."""

    def __init__(self, folder: Path, found: bytes | Exception) -> None:
        super().__init__(folder.as_uri())
        self.found = found
        self.asked = 0

    def get(self, name: str, bytes_max: int) -> bytes:  # noqa: ARG002 - as of a store
        self.asked += 1
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


def right(store: ReadsObjects) -> bytes:
    if (found := store.get(NAME, 10)) != b"right":
        raise DamagedError("it is damaged")
    return found


AWAY, GONE, WRONG = StoreError("it is away"), MissingError("it is gone"), b"wrong"


@pytest.mark.parametrize(
    ("first", "second", "expected", "used"),
    [
        (b"right", AWAY, b"right", False),
        (WRONG, b"right", b"right", True),
        (GONE, b"right", b"right", True),
        (AWAY, b"right", b"right", True),
        (WRONG, GONE, DamagedError("it is damaged"), False),
        (GONE, WRONG, GONE, False),
        (AWAY, GONE, AWAY, False),
        # It may be there: that is no last word.
        (GONE, AWAY, AWAY, False),
        (WRONG, AWAY, AWAY, False),
    ],
)
def test_what_is_read_from_which(
    tmp_path: Path,
    first: bytes | Exception,
    second: bytes | Exception,
    expected: bytes | Exception,
    used: bool,
) -> None:
    either = TwoStores(Fake(tmp_path, first), Fake(tmp_path, second)).reading()
    if isinstance(expected, Exception):
        with pytest.raises(type(expected), match=str(expected)):
            either.attempt(right)
    else:
        assert either.attempt(right) == expected
    assert either.used_copy is used


def test_a_store_that_is_away_is_asked_last_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = Fake(tmp_path, AWAY), Fake(tmp_path, b"right")
    stores = TwoStores(first, second)
    for _ in range(3):
        assert stores.reading().attempt(right) == b"right"
    assert (first.asked, second.asked) == (1, 3)
    second.found, first.found = GONE, b"right"
    either = stores.reading()
    assert either.attempt(right) == b"right"
    assert not either.used_copy
    monkeypatch.setattr(two_stores, "AWAY_S", 0.0)
    stores.first_failed()
    assert stores.reading().attempt(right) == b"right"
    assert second.asked == 4


def test_two_objects_at_a_time_and_one_of_each_tenant() -> None:
    places = Pools().second_store
    one, other = share_of("tenant", "person"), share_of("other tenant", "person")
    assert places.try_enter(one)
    assert not places.try_enter(one)
    assert not places.try_enter(other), "of the same person"
    assert places.try_enter(share_of("third", ""))
    assert not places.try_enter(share_of("fourth", ""))
    places.leave(one)
    assert places.try_enter(share_of("fourth", ""))


def test_the_second_store_has_credentials_of_its_own() -> None:
    environment = {
        "AWS_ACCESS_KEY_ID": "one",
        "AWS_SESSION_TOKEN": "of one",
        "AWS_ALLOW_HTTP": "true",
        "BACKUP_COPY_AWS_ACCESS_KEY_ID": "other",
        "BACKUP_COPY_AWS_SECRET_ACCESS_KEY": "secret-word",
        "BACKUP_COPY_AWS_REGION": "eu-west-1",
        "BACKUP_COPY_AWS_ALLOW_HTTP": "false",
        "BACKUP_COPY_AZURE_STORAGE_ACCOUNT_NAME": "account",
    }
    found = variables.of_second("s3", environment)
    assert found.options["config"] == {"aws_region": "eu-west-1"}
    assert found.options["credential_provider"]() == {
        "access_key_id": "other",
        "secret_access_key": "secret-word",
        "token": None,
        "expires_at": None,
    }
    assert (found.allows_http, variables.of_first(environment).allows_http) == (False, True)
    assert "secret-word" not in repr(found)
    azure = variables.of_second("az", environment)
    assert azure.options == {"config": {"azure_storage_account_name": "account"}}
    assert variables.of_second("s3", {}).options == variables.of_first({}).options == {}
    assert variables.of_second("file", environment).options == {}


class Named(Store):
    """Has objects of these names, whoever put them there."""

    def __init__(self, folder: Path, names: list[str]) -> None:
        super().__init__(folder.as_uri())
        self.names = names

    def list(self, prefix: str) -> "list[StoreEntry]":  # type: ignore[override]
        return [StoreEntry(each, 1) for each in self.names if each.startswith(prefix)]


@given(st.lists(st.tuples(st.sampled_from([OWN, "inst_2", "x"]), st.lists(PIECES, max_size=4))))
def test_names_are_taken_for_nothing_else(made: list[tuple[str, list[str]]]) -> None:
    """What is found is of this instance, and named so, whatever names somebody gives objects."""
    names = ["/".join([owner, *pieces]) for owner, pieces in made]
    found = listing(Named(Path("/nowhere"), names), OWN)
    assert found.complete <= found.begun
    assert all(f"{OWN}/{each}/manifest" in names for each in found.complete)
    # What is removed by these names is nothing else either.
    assert all(each.startswith("bkp_") for each in found.begun)
    assert all(each.startswith("wal_") for each in found.wal)
    assert all(any(one.startswith(f"{OWN}/{each}/") for one in names) for each in found.begun)
    for chain, pieces in found.wal.items():
        assert all(f"{OWN}/wal/{chain}/{each}" in names for each in pieces)
    assert all(each in names and each.startswith(f"{OWN}/") for each in found.unfinished)


@pytest.fixture
def written(tmp_path: Path) -> tuple[Copying, Manifest]:
    """Two folders, and a backup of two parts in the first."""
    for each in ("first", "second", "data"):
        (tmp_path / each).mkdir()
    first, second = (Store((tmp_path / each).as_uri()) for each in ("first", "second"))
    (tmp_path / "data" / "file").write_bytes(os.urandom(20 * 2**20))
    name = BackupName("inst_1", "bkp_1")
    content = writing.write(first, KEY, name, tmp_path / "data")
    made = Manifest("inst_1", "bkp_1", "manual", "duckdb", "1", 1, 1.0, 2.0, content)
    sealed = made.seal(KEY, b"wrapped")
    first.put(name.manifest, sealed)
    return Copying(first, second), made.stored_as(sealed)


def test_what_is_not_as_it_was_written_is_not_copied(written: tuple[Copying, Manifest]) -> None:
    copying, made = written
    name, part = made.name, made.content.parts[1]
    right_one = copying.first.get(name.part(1), part.stored_bytes)
    spoilt = bytearray(right_one)
    spoilt[len(spoilt) // 2] ^= 1
    copying.first.put(name.part(1), bytes(spoilt))
    with pytest.raises(DamagedError):
        copying.copy_part(name, 1, part, may_be_there=False)
    with pytest.raises(MissingError):
        copying.second.get(name.part(1), part.stored_bytes)
    # What is there already, and right, is not copied once more; else it is.
    copying.second.put(name.part(1), right_one)
    copying.copy_part(name, 1, part, may_be_there=True)
    copying.second.put(name.part(1), bytes(spoilt))
    with pytest.raises(DamagedError):
        copying.copy_part(name, 1, part, may_be_there=True)
    copying.first.put(name.manifest, made.seal(KEY, b"another"))
    with pytest.raises(DamagedError, match="has changed"):
        copying.copy_manifest(made)
    copying.first.remove([name.manifest])
    assert copying.copy_manifest(made) is False
    assert copying.manifest(KEY, name) is None
    with pytest.raises(MissingError):
        copying.second.get(name.manifest, 10**6)


def test_a_store_that_keeps_something_else_is_found_out(
    written: tuple[Copying, Manifest], monkeypatch: pytest.MonkeyPatch
) -> None:
    copying, made = written
    put: Callable[[str, bytes], None] = copying.second.put
    monkeypatch.setattr(copying.second, "put", lambda name, content: put(name, content[:-1]))
    with pytest.raises(StoreError, match="something else"):
        copying.copy_part(made.name, 0, made.content.parts[0], may_be_there=False)
    with pytest.raises(StoreError, match="something else"):
        copying.copy_manifest(made)
