"""Backups of an installation: what is in them, who can open them, and what is no home of ours.

Of homes that no service has; test_lost_host has the whole way.
"""

import hashlib
import io
import json
import shutil
import sqlite3
import tarfile
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
import zstandard
from sqlalchemy import make_url
from ulid import ULID

from cell.backups import sealed_objects
from cell.backups.manifest import Manifest, Part, StoredContent
from cell.database import Database as CellDatabase
from cell.instances.lost_data import LostData
from contract_tests.databases import Databases
from menagerie import keys
from menagerie.doctor.installation import of_backup
from menagerie.errors import SettingsError
from menagerie.recovery import archives, backing_up, passphrases, recovering, state
from menagerie.recovery import databases as copies
from menagerie.recovery.archives import ArchiveKey
from menagerie.recovery.sealed_file import NewSealedFile, SealedFile
from menagerie.settings import Settings, load
from storage import migrations
from storage.database import Database

PASSPHRASE = "correct horse battery staple"
INSTANCE = "inst_01JD7QK3V8Y2M4N6P8R0S2T4V6"


@pytest.fixture(autouse=True)
def _keys_are_made_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of users take long, so that guesses do: test_passphrases.py."""
    monkeypatch.setattr(passphrases, "COST", 2)


def make_home(root: Path) -> Settings:
    """As a first start leaves it, but for what only a service has."""
    keys.make_all(root)
    database = Database(load(home=root).database)
    database.migrate()
    database.dispose()
    (root / "cell" / "pki").mkdir(parents=True)
    (root / "cell" / "pki" / "root.pem").write_text("certificate")
    (root / "cell" / "seal.key").write_bytes(b"s" * 32)
    (root / "endpoints.json").write_text("{}")
    cell = CellDatabase(root / "cell" / "cell.db")
    cell.write(
        "INSERT INTO instances VALUES (?, 200000, '{}', 'running', NULL, 1)",
        INSTANCE,
    )
    cell.write("INSERT INTO answers VALUES ('op:put', 200, '{}', 1)")
    cell.close()
    return load(home=root)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made once: a schema takes longer than all else here."""
    return make_home(tmp_path_factory.mktemp("template") / "home").root


@pytest.fixture
def settings(template: Path, tmp_path: Path) -> Settings:
    shutil.copytree(template, tmp_path / "first")
    return load(home=tmp_path / "first")


@pytest.fixture
def file(settings: Settings, tmp_path: Path) -> Path:
    backing_up.into_file(settings, tmp_path / "it.backup", PASSPHRASE, force=False)
    return tmp_path / "it.backup"


def recover(source: Path | str, home: Path, passphrase: str = PASSPHRASE, **more: Any) -> Any:
    given = {"keep_database": False, **more}
    return recovering.recover(home, str(source), given.pop("backup_id", None), passphrase, **given)


def refused(source: Path | str, home: Path, reason: str, **more: Any) -> None:
    """Nothing of it is in the home then."""
    with pytest.raises(SettingsError, match=reason):
        recover(source, home, **more)
    assert not home.exists() or not list(home.iterdir())


def test_all_that_cannot_be_made_anew_is_there(
    settings: Settings, file: Path, tmp_path: Path
) -> None:
    assert file.stat().st_mode & 0o777 == 0o600
    first, second = settings.root, tmp_path / "second"
    told = recover(file, second)
    same = [*state.FILES, "cell/pki/root.pem"]
    there = [name for name in same if (first / name).exists()]
    assert len(there) > 6
    for name in there:
        assert (first / name).read_bytes() == (second / name).read_bytes(), name
        mode = (second / name).stat().st_mode & 0o777
        assert mode == (0o644 if name.endswith(".pem") else 0o600)
    cell = CellDatabase(second / "cell" / "cell.db")
    assert LostData(cell).is_left(INSTANCE, has_begun=False)
    # What was done to data that is lost has not been done.
    assert cell.rows("SELECT key FROM answers") == []
    cell.close()
    assert told.home == str(second)
    assert not list(first.glob(".backup-*"))


def test_a_copy_is_of_one_moment_while_others_write(settings: Settings, tmp_path: Path) -> None:
    source = Path(str(make_url(settings.database).database))
    with closing(sqlite3.connect(source)) as db:
        db.execute("CREATE TABLE pairs (n INTEGER)")
        db.commit()
    ended = threading.Event()

    def write() -> None:
        with closing(sqlite3.connect(source, timeout=30)) as db:
            number = 0
            while not ended.is_set():
                number += 1
                db.executemany("INSERT INTO pairs VALUES (?)", [(number,), (number,)])
                db.commit()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(5):
            copies.copy_sqlite(source, tmp_path / f"{number}")
    finally:
        ended.set()
        writer.join()
    for number in range(5):
        with closing(sqlite3.connect(tmp_path / f"{number}")) as db:
            odd = "SELECT n FROM pairs GROUP BY n HAVING count(*) != 2"
            assert db.execute(odd).fetchall() == []


def plain(url: str) -> str:
    """As libpq has it."""
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


def test_on_postgresql_it_is_dumped_and_recovered_into_an_empty_database(
    tmp_path: Path, databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = databases.migrated("postgresql")
    monkeypatch.setenv("MENAGERIE_DATABASE_URL", url)
    first = make_home(tmp_path / "first")
    with psycopg.connect(plain(url)) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS n")
    target = tmp_path / "it.backup"
    backing_up.into_file(first, target, PASSPHRASE, force=False)
    refused(target, tmp_path / "second", "has tables already: create an empty one")
    empty = databases.empty("postgresql")
    monkeypatch.setenv("MENAGERIE_DATABASE_URL", empty)
    recover(target, tmp_path / "second")
    with psycopg.connect(plain(empty)) as connection:
        assert connection.execute("SELECT n FROM kept").fetchone() == (7,)
    monkeypatch.delenv("MENAGERIE_DATABASE_URL")
    refused(target, tmp_path / "third", "the backup has a database of PostgreSQL")
    monkeypatch.setenv("MENAGERIE_DATABASE_URL", url)
    recover(target, tmp_path / "third", keep_database=True)


def test_the_database_s_password_is_in_no_list_of_processes() -> None:
    for url in (
        "postgresql://me:hunter2@host:5433/db?sslmode=require",
        "postgresql+psycopg://me@host:5433/db?sslmode=require&password=hunter2",
    ):
        left, password = copies.without_password(make_url(url))
        assert password == "hunter2"
        assert left.render_as_string() == "postgresql://me@host:5433/db?sslmode=require"


def test_a_database_that_is_not_there_is_not_kept(file: Path, tmp_path: Path) -> None:
    reason = "does not exist: leave out --keep-database"
    refused(file, tmp_path / "second", reason, keep_database=True)


def test_a_wrong_passphrase_opens_nothing(file: Path, tmp_path: Path) -> None:
    reason = "the passphrase is not the one that the backup was made with"
    refused(file, tmp_path / "second", reason, passphrase="correct horse battery stapl")


def test_a_file_that_is_cut_off_anywhere_is_refused(file: Path, tmp_path: Path) -> None:
    whole = file.read_bytes()
    for length in (0, 4, 8, 12, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:length])
        refused(file, tmp_path / "second", "cut off|not a backup|does not have one backup")


def test_a_file_with_a_changed_byte_is_refused(file: Path, tmp_path: Path) -> None:
    whole = file.read_bytes()
    for place in range(0, len(whole), len(whole) // 60):
        changed = bytearray(whole)
        changed[place] ^= 0x10
        file.write_bytes(changed)
        refused(file, tmp_path / "second", "it.backup cannot be recovered")


def test_what_is_in_a_home_keeps_it_from_being_recovered_into(file: Path, tmp_path: Path) -> None:
    home = tmp_path / "second"
    home.mkdir()
    (home / "config.toml").touch()
    with pytest.raises(SettingsError, match=r"is not empty \(config.toml\): recover into another"):
        recover(file, home)
    (home / "config.toml").unlink()
    # Of one that was killed, and of a new file system.
    (home / ".recovering").mkdir()
    (home / ".recovering" / "left").touch()
    (home / "lost+found").mkdir()
    recover(file, home)
    assert not (home / ".recovering").exists()
    (tmp_path / "third").touch()
    with pytest.raises(SettingsError, match="is not a folder"):
        recover(file, tmp_path / "third")


def test_a_file_there_is_is_not_overwritten_unless_told(settings: Settings, file: Path) -> None:
    before = file.read_bytes()
    with pytest.raises(SettingsError, match="exists: choose another file, or pass --force"):
        backing_up.into_file(settings, file, PASSPHRASE, force=False)
    assert file.read_bytes() == before
    backing_up.into_file(settings, file, PASSPHRASE, force=True)
    assert file.read_bytes() != before
    assert [path.name for path in file.parent.glob(".it*")] == []


def made(target: Path, tar: bytes, key: ArchiveKey) -> None:
    """A file with this archive, by somebody who knows the passphrase."""
    name = archives.new_name("cell_x")
    stored = zstandard.compress(tar)
    with NewSealedFile(target) as written:
        sealed = sealed_objects.seal(key.key, name.part(0), stored)
        written.put(name.part(0), sealed)
        part = Part(len(sealed), hashlib.sha256(sealed).hexdigest())
        digest = hashlib.sha256(tar).hexdigest()
        content = StoredContent(len(tar), digest, (part,))
        manifest = Manifest(
            name.instance_id, name.backup_id, "manual", "menagerie", "1", 1, 1, 1, content
        )
        written.put(name.manifest, manifest.seal(key.key, key.derivation.written()))
        written.publish()


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.type, found.linkname = kind, link
    return found


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (member("../outside"), "unexpected entry"),
        (member("/tmp/outside"), "unexpected entry"),
        (member("home/../../outside"), "unexpected entry"),
        (member("home/keys", tarfile.SYMTYPE, "/etc"), "unexpected entry"),
        (member("home/keys/seal.key", tarfile.LNKTYPE, "/etc/passwd"), "unexpected entry"),
        (member("home/cell/fifo", tarfile.FIFOTYPE), "unexpected entry"),
        (member("home/.bashrc"), "unexpected file, .bashrc"),
        (member("home/cell/activity.json"), "unexpected file"),
        (member("home/cell/pki/../../../x"), "unexpected entry"),
    ],
)
def test_nothing_of_an_archive_lands_where_it_does_not_belong(
    tmp_path: Path, entry: tarfile.TarInfo, reason: str
) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        said = json.dumps(
            {"format": 1, "version": "1", "made_at": "", "cell_id": "", "store_url": ""}
        ).encode()
        contents = member("contents.json")
        contents.size = len(said)
        tar.addfile(contents, io.BytesIO(said))
        for folder in ("home", "home/cell", "home/keys"):
            if entry.name != folder:
                tar.addfile(member(folder, tarfile.DIRTYPE))
        tar.addfile(entry)
    made(tmp_path / "it.backup", buffer.getvalue(), ArchiveKey.new(PASSPHRASE))
    refused(tmp_path / "it.backup", tmp_path / "second", reason)
    assert not (tmp_path / "outside").exists()


def changed(file: Path, act: Callable[[Path], None], folder: Path) -> None:
    """The same file with something else in it."""
    folder.mkdir(exist_ok=True)
    opened = SealedFile(file)
    archives.unpack(opened, archives.only(opened.names), PASSPHRASE, folder / "unpacked")
    opened.close()
    act(folder / "unpacked")
    key, name = ArchiveKey.new(PASSPHRASE), archives.new_name("cell_x")
    with NewSealedFile(file) as written:
        _, sealed = archives.write(written, name, folder / "unpacked", key, "manual")
        written.put(name.manifest, sealed)
        written.publish()


def test_one_of_an_older_version_is_brought_up_to_date(file: Path, tmp_path: Path) -> None:
    def age(folder: Path) -> None:
        database = Database(f"sqlite:///{folder / copies.SQLITE}")
        migrations.downgrade(database.engine, "202611231735")
        database.dispose()
        with closing(sqlite3.connect(folder / "home" / "cell" / "cell.db")) as cell:
            cell.execute("DROP TABLE lost_data")

    changed(file, age, tmp_path)
    recover(file, tmp_path / "second")
    database = Database(load(home=tmp_path / "second").database)
    with database.engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM backups").scalar_one() == 0
    database.dispose()


def test_one_of_a_newer_version_is_left_to_that(file: Path, tmp_path: Path) -> None:
    def newer(folder: Path) -> None:
        said = json.loads((folder / "contents.json").read_bytes())
        (folder / "contents.json").write_text(json.dumps(said | {"format": 2, "version": "9.0"}))

    whole = file.read_bytes()
    changed(file, newer, tmp_path)
    refused(file, tmp_path / "second", r"the newer version 9\.0: recover with that version")
    file.write_bytes(whole)

    def migrated(folder: Path) -> None:
        with closing(sqlite3.connect(folder / copies.SQLITE)) as db:
            db.execute("UPDATE alembic_version SET version_num = '209901010000'")
            db.commit()

    changed(file, migrated, tmp_path / "more")
    refused(file, tmp_path / "second", "revision 209901010000, but this version knows")


def test_in_a_store_the_newest_counts_and_each_installation_has_its_own(
    settings: Settings, tmp_path: Path
) -> None:
    (tmp_path / "store").mkdir()
    url = (tmp_path / "store").as_uri()
    stored = settings.model_copy(update={"backup_store_url": url})
    assert [each.status for each in of_backup(stored)] == ["note"]
    told = stored.model_copy(update={"installation_backup_passphrase": PASSPHRASE})
    assert [each.status for each in of_backup(told)] == ["warning"]
    first = backing_up.into_store(stored, PASSPHRASE, "manual")
    (found,) = of_backup(told)
    assert (found.status, found.remedy) == ("ok", None)
    assert found.detail.startswith("was last made at 20")
    second = backing_up.into_store(stored, PASSPHRASE, "scheduled")
    assert recover(url, tmp_path / "second").made_at == second.made_at
    older = recover(url, tmp_path / "third", backup_id=first.backup_id)
    assert (older.made_at, older.former_store_url) == (first.made_at, url)
    shutil.copytree(settings.root, tmp_path / "other")
    (tmp_path / "other" / "keys" / "cell.id").write_text(f"cell_{ULID()}")
    other = load(home=tmp_path / "other", backup_store_url=url)
    backing_up.into_store(other, PASSPHRASE, "manual")
    refused(url, tmp_path / "fourth", "backups of several installations; name one with --backup")
    refused(url, tmp_path / "fourth", "there is no backup ibk_1", backup_id="ibk_1")
    for path in (tmp_path / "store").rglob("manifest"):
        path.unlink()
    refused(url, tmp_path / "fourth", "there is no complete backup of an installation")


def test_the_second_store_has_them_too(settings: Settings, tmp_path: Path) -> None:
    first, second = tmp_path / "store", tmp_path / "copies"
    first.mkdir()
    second.mkdir()
    urls = {"backup_store_url": first.as_uri(), "backup_copy_store_url": second.as_uri()}
    stored = settings.model_copy(update=urls)
    both = backing_up.into_store(stored, PASSPHRASE, "manual")
    assert recover(second.as_uri(), tmp_path / "second").made_at == both.made_at
    for away, there in ((first, second), (second, first)):
        made = len(list(there.rglob("manifest")))
        away.rename(tmp_path / "aside")
        with pytest.raises(SettingsError, match="store of backups is missing"):
            backing_up.into_store(stored, PASSPHRASE, "manual")
        assert len(list(there.rglob("manifest"))) == made + 1
        (tmp_path / "aside").rename(away)
    recover(first.as_uri(), tmp_path / "third")


def test_a_folder_that_is_no_home_is_not_backed_up(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(SettingsError, match="is not the home of an installation"):
        backing_up.into_file(load(home=tmp_path / "empty"), tmp_path / "x", PASSPHRASE, force=False)
    assert not (tmp_path / "x").exists()
