"""One contract for every kind of store: here a folder, and S3 as moto serves it on loopback."""

import contextlib
import os
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from moto.server import ThreadedMotoServer

from cell.backups import reading, writing
from cell.backups.manifest import BackupName, Manifest
from cell.backups.sealed_objects import DamagedError
from cell.backups.store import MissingError, Store, StoreError
from contract_tests.cell.backups.backup_calls import back_up, listed
from contract_tests.cell.rig import VALKEY, Rig

BUCKET = "backups"
KEY = bytes(range(32))


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, str]]:
    """What the environment says of a server of S3 with a bucket."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    httpx.put(f"http://{host}:{port}/{BUCKET}").raise_for_status()
    yield {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
    }
    server.stop()


@pytest.fixture
def s3_environment(s3: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "folder":
        (tmp_path / "a store").mkdir()
        return Store((tmp_path / "a store").as_uri())
    request.getfixturevalue("s3_environment")
    return Store(f"s3://{BUCKET}/{tmp_path.name}")


def names(store: Store, prefix: str) -> list[str]:
    return sorted(each.name for each in store.list(prefix))


def test_what_is_put_is_there(store: Store) -> None:
    assert names(store, "a/") == []
    store.put("a/b/one", b"1")
    store.put("a/b/two", b"22")
    store.put("a/b/two", b"333")
    store.put("ab/other", b"")
    assert store.get("a/b/two", 10) == b"333"
    assert store.get("ab/other", 0) == b""
    assert names(store, "a/") == ["a/b/one", "a/b/two"]
    assert {each.size_bytes for each in store.list("a/")} == {1, 3}
    store.settle()
    with pytest.raises(MissingError):
        store.get("a/b/three", 10)
    with pytest.raises(StoreError, match="larger"):
        store.get("a/b/two", 2)


def test_one_is_created_and_no_second(store: Store) -> None:
    assert store.create("a/manifest", b"first")
    assert not store.create("a/manifest", b"second")
    assert store.get("a/manifest", 10) == b"first"


def test_what_is_removed_is_gone(store: Store) -> None:
    for name in ("a/b/1", "a/b/2", "a/c/1"):
        store.put(name, b"x")
    store.remove(["a/b/1", "a/b/none"])
    assert names(store, "a/") == ["a/b/2", "a/c/1"]
    store.remove_all("a/b/")
    store.remove_all("a/none/")
    store.remove([])
    assert names(store, "a/") == ["a/c/1"]


@pytest.mark.parametrize("link", ["inst", "inst/bkp", "inst/bkp/part"])
def test_links_in_a_folder_lead_nowhere(tmp_path: Path, link: str) -> None:
    """Whoever else can write there has no files of the host read, written or removed."""
    top, host = tmp_path / "store", tmp_path / "host"
    (host / "bkp").mkdir(parents=True)
    for kept in (host / "part", host / "bkp" / "part"):
        kept.write_bytes(b"the host's")
    top.mkdir()
    store = Store(top.as_uri())
    place = top / link
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(host / "part" if link.endswith("part") else host)
    for attempt in (
        lambda: store.get("inst/bkp/part", 100),
        lambda: store.put("inst/bkp/part", b"ours"),
        lambda: store.create("inst/bkp/part", b"ours"),
    ):
        with pytest.raises(StoreError):
            attempt()
    with contextlib.suppress(StoreError):
        assert names(store, "inst/") == []
    store.remove(["inst/bkp/part"])
    store.remove_all("inst/bkp/")
    store.remove_all("inst/")
    assert not (top / "inst").exists()
    assert not (top / "inst").is_symlink()
    assert {each.read_bytes() for each in host.rglob("part")} == {b"the host's"}
    assert len(list(host.rglob("*"))) == 3


def test_a_pipe_in_a_folder_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    os.mkfifo(tmp_path / "a" / "manifest")
    store = Store(tmp_path.as_uri())
    with pytest.raises(StoreError):
        store.get("a/manifest", 100)
    assert names(store, "a/") == []


def test_a_backup_goes_through(store: Store, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    content = array("I", range(6_000_000)).tobytes()
    (tmp_path / "data" / "file").write_bytes(content)
    name = BackupName("inst_1", "bkp_1")
    written = writing.write(store, KEY, name, tmp_path / "data")
    made = Manifest("inst_1", "bkp_1", "manual", "duckdb", "1", 1, 1.0, 2.0, written)
    assert store.create(name.manifest, made.seal(KEY, b"wrapped"))
    found = reading.manifest(store, KEY, name)
    reading.unpack(store, KEY, found, tmp_path / "read")
    assert (tmp_path / "read" / "file").read_bytes() == content
    store.remove([name.part(0)])
    with pytest.raises(DamagedError, match="missing"):
        reading.check(store, KEY, found)


def test_a_store_that_is_away_is_told_of_without_its_address(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("cell.backups.store.RETRIES", 0)
    for name, value in {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "secret-name",
        "AWS_SECRET_ACCESS_KEY": "secret-word",
    }.items():
        monkeypatch.setenv(name, value)
    away = Store("s3://bucket/prefix")
    calls: list[Callable[[], object]] = [
        lambda: away.get("a", 1),
        lambda: away.put("a", b""),
        lambda: away.create("a", b""),
        lambda: list(away.list("a/")),
        lambda: away.remove(["a"]),
    ]
    for call in calls:
        with pytest.raises(StoreError) as told:
            call()
        assert not isinstance(told.value, MissingError)
        assert not {"127", "secret", "bucket"} & set(str(told.value).replace(".", " ").split())
    with pytest.raises(StoreError, match="begins with"):
        Store("http://example.com")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError):
        Store((tmp_path / "file" / "store").as_uri()).put("a", b"")


def test_a_folder_that_is_missing_is_no_empty_store(tmp_path: Path) -> None:
    folder = tmp_path / "volume" / "backups"
    folder.mkdir(parents=True)
    store = Store(folder.as_uri())
    store.put("a/one", b"1")
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.parent.rename(tmp_path / "elsewhere")
    calls: list[Callable[[], object]] = [
        *(lambda: store.put("a/two", b""), lambda: store.remove_all("a/"), store.settle),
        *(lambda: list(store.list("a/")), lambda: store.get("a/one", 10)),
    ]
    for call in calls:
        with pytest.raises(StoreError, match=r"missing|does not respond") as told:
            call()
        assert not isinstance(told.value, MissingError)
    (tmp_path / "elsewhere").rename(folder.parent)
    assert names(store, "a/") == ["a/one"]


@pytest.mark.usefixtures("s3_environment")
def test_a_cell_keeps_its_backups_in_a_bucket(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(backup_store_url=f"s3://{BUCKET}/cell")
    instance_id = rig.make(**VALKEY)
    password = rig.reveal(instance_id)["password"]
    rig.add(instance_id, password, 1)
    made = back_up(rig, instance_id)
    rig.add(instance_id, password, 2)
    assert listed(rig, instance_id) == [made]
    assert not (rig.home / "backups").exists()
    rig.action(instance_id, "restore", {"backup_id": made["backup_id"]})
    assert rig.numbers(instance_id, password) == [1]
    rig.action(instance_id, "erase")
    assert names(Store(f"s3://{BUCKET}/cell"), f"{instance_id}/") == []
