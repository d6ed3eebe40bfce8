"""The installation: its home, disk, database, ports, and the service where it runs."""

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cell.backups.store import Store, StoreError
from cell.timestamps import moment
from menagerie import home, ownership, waiting
from menagerie.doctor.findings import Finding, Status
from menagerie.errors import SettingsError
from menagerie.held_ports import port_held
from menagerie.recovery import archives, last_made, passphrases
from menagerie.settings import Settings

ROOM_MIN_BYTES: Final = 100 * 10**6
ROOM_BYTES: Final = 2 * 10**9
FILES_MIN: Final = 1000
SKEW_S: Final = 30
LATE: Final = 3
"""So many times the interval: one that failed is tried again at once."""


def of_home(settings: Settings) -> Iterator[Finding]:
    """Changes nothing; a start makes the home, and closes it."""
    root = settings.root
    try:
        home.check(root)
    except SettingsError as error:
        owner = ownership.user(os.geteuid())
        yield Finding("home", "failure", str(error), f"ls -ld {root} (for {owner})")
        return
    exposed = list(home.exposed(root))
    if exposed:
        shown = " ".join(str(path) for path in exposed[:5])
        detail = f"{len(exposed)} of its files and folders are open to other users: {shown}"
        yield Finding("home", "warning", detail, f"chmod go-rw {shown}")
    else:
        there = (
            "is closed to other users" if root.exists() else "will be created by the first start"
        )
        yield Finding("home", "ok", f"{root} {there}")


def of_disk(settings: Settings) -> Iterator[Finding]:
    folder = nearest(settings.root)
    free = shutil.disk_usage(folder).free
    found = os.statvfs(folder)
    detail = f"{free / 10**9:.1f} GB free at {folder}"
    if found.f_files and found.f_favail < FILES_MIN:
        yield Finding("disk", "failure", f"no inodes are free at {folder}", f"df -i {folder}")
    elif free < ROOM_BYTES:
        status: Status = "failure" if free < ROOM_MIN_BYTES else "warning"
        yield Finding("disk", status, detail, f"free some space: df -h {folder}")
    else:
        yield Finding("disk", "ok", detail)


def of_database(settings: Settings) -> Iterator[Finding]:
    from storage.database import Database  # noqa: PLC0415 -- slow to import
    from storage.errors import StorageUnavailable  # noqa: PLC0415 -- see above

    if settings.on_sqlite:
        try:
            home.check(settings.root)
        except SettingsError:
            yield Finding("database", "note", "not checked, because the home cannot be used")
            return
        if not (settings.root / "menagerie.db").exists():
            yield Finding("database", "ok", "SQLite; the first start will create it")
            return
    database = Database(settings.database)
    try:
        with database.read() as db:
            skew_s = time.time() - database.now(db).timestamp()
    except StorageUnavailable as error:
        reason = str(getattr(error.__cause__, "orig", None) or error.detail).partition("\n")[0]
        remedy = "check the setting database_url: menagerie config"
        yield Finding("database", "failure", f"cannot be used: {reason}", remedy)
        return
    finally:
        database.dispose()
    yield Finding("database", "ok", "SQLite" if settings.on_sqlite else "answers")
    if abs(skew_s) > SKEW_S:
        direction = "ahead of" if skew_s > 0 else "behind"
        detail = f"{abs(skew_s):.0f} s {direction} the database's clock"
        yield Finding("clock", "warning", detail, "timedatectl set-ntp true")


def of_backup(settings: Settings) -> Iterator[Finding]:
    """Whether all could be recovered of a host that is lost now."""
    name = "installation backup"
    if not (settings.root / "keys" / "cell.id").exists():
        return
    made_at = last_made.at(settings.root, settings.backup_store)
    told = "has not been made yet"
    if made_at is not None:
        told = f"was last made at {moment(made_at)}, in {settings.backup_store}"
    if not passphrases.is_told(settings):
        remedy = "set installation_backup_passphrase_file (docs/disaster-recovery.md)"
        yield Finding(name, "note", f"{told}; none is made regularly", remedy)
    elif made_at is None or time.time() - made_at > LATE * settings.installation_backup_every_s:
        yield Finding(name, "warning", told, "menagerie backup, and see the log of `serve`")
    elif not settings.backup_store_url:
        detail = f"{told}, which is on the disk of the home"
        yield Finding(name, "warning", detail, "set backup_store_url to a store elsewhere")
    else:
        yield Finding(name, "ok", told)


def of_stores(settings: Settings) -> Iterator[Finding]:
    """Whether those that are set can be listed. That of the home is made by the first backup."""
    for setting, is_second in (("backup_store_url", False), ("backup_copy_store_url", True)):
        url = getattr(settings, setting)
        if not url:
            continue
        name = "second backup store" if is_second else "backup store"
        try:
            next(Store(url, is_second=is_second).list(archives.PREFIX), None)
        except StoreError as error:
            remedy = f"check the setting {setting} and its credentials: menagerie config"
            yield Finding(name, "failure", f"{url}: {error}", remedy)
        else:
            yield Finding(name, "ok", url)


def of_ports(settings: Settings) -> Iterator[Finding]:
    if waiting.is_served(settings):
        yield Finding("ports", "ok", "in use by the service of this home")
        return
    gateway = settings.gateway_listen.partition(",")[0].strip()
    wanted = [("port", settings.host, settings.port)]
    for protocol, port in settings.gateway_ports.items():
        wanted.append((f"gateway_{protocol}_port", gateway, port))
    taken = []
    for name, address, port in wanted:
        try:
            with port_held(address, port, f"--{name.replace('_', '-')}"):
                pass
        except SettingsError as error:
            taken.append(
                Finding(f"port {port}", "failure", str(error), f"ss -ltnp sport = :{port}")
            )
    yield from taken or [Finding("ports", "ok", "all free")]


def of_service(settings: Settings) -> Iterator[Finding]:
    seen = waiting.look(settings)
    if not seen.missing:
        yield Finding("service", "ok", f"ready at {seen.url}")
        if seen.told:
            yield Finding("clock", "warning", seen.told, "timedatectl set-ntp true")
    elif waiting.is_served(settings):
        log = "see its log (standard error)"
        yield Finding("service", "failure", f"not ready: {seen.missing}", log)
    else:
        yield Finding("service", "note", f"not running on {settings.root}", "menagerie serve")


def nearest(path: Path) -> Path:
    """Itself, or the folder above it that is there."""
    return next(each for each in (path, *path.parents) if each.is_dir())
