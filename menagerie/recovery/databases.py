"""The databases of an installation, copied while they are in use, and put back."""

import os
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Final
from urllib.parse import quote

from sqlalchemy import URL, inspect, make_url

from clients import postgres_tools
from clients.errors import ConfigurationError
from menagerie.errors import SettingsError
from menagerie.settings import Settings
from storage.database import Database

SQLITE: Final = "menagerie.sqlite"
DUMP: Final = "menagerie.dump"
_BUSY_S: Final = 30
_TOLD_CHARACTERS: Final = 300


def copy_control(settings: Settings, folder: Path) -> None:
    """The control plane's, as it is at one moment, into a file of the folder."""
    url = make_url(settings.database)
    if settings.on_sqlite:
        copy_sqlite(Path(str(url.database)), folder / SQLITE)
    else:
        words = ("--format=custom", "--no-owner", "--no-privileges", f"--file={folder / DUMP}")
        _run("pg_dump", settings, *words)


def copy_sqlite(source: Path, target: Path) -> None:
    """With SQLite's own means, beside whoever writes to it. Raises SettingsError."""
    try:
        # Not `ro`: where nobody has it open, SQLite makes the file that its readers share.
        with (
            closing(sqlite3.connect(f"file:{quote(str(source))}?mode=rw", uri=True)) as read,
            closing(sqlite3.connect(target)) as written,
        ):
            read.execute(f"PRAGMA busy_timeout={_BUSY_S * 1000}")
            # In one step: a copy in several begins anew whenever something is written meanwhile.
            read.backup(written)
            written.execute("PRAGMA journal_mode=DELETE").fetchall()
            (said,) = written.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.Error as error:
        raise SettingsError(f"{source} cannot be copied: {error}") from error
    if said != "ok":
        raise SettingsError(f"{source} is damaged ({said}); a backup of it would be, too")
    target.chmod(0o600)


def check_empty(settings: Settings) -> None:
    """Raises SettingsError where the database to recover into has something already."""
    url = make_url(settings.database)
    if settings.on_sqlite:
        if Path(str(url.database)).exists():
            raise SettingsError(f"{url.database} exists: move it away, or pass --keep-database")
        return
    database = Database(settings.database)
    try:
        with database.engine.connect() as connection:
            tables = inspect(connection).get_table_names()
    finally:
        database.dispose()
    if tables:
        raise SettingsError(
            "the database in database_url has tables already: create an empty one, or pass"
            " --keep-database if it is the installation's own, which was not lost"
        )


def check_kept(settings: Settings) -> None:
    """Raises SettingsError where no database is there that could be kept."""
    url = make_url(settings.database)
    if settings.on_sqlite and not Path(str(url.database)).exists():
        raise SettingsError(
            f"{url.database} does not exist: leave out --keep-database, which is for a database"
            " outside the home that was not lost"
        )


def put_back(settings: Settings, folder: Path, home: Path) -> None:
    """What `copy_control` made; into `home` where the database belongs into the home."""
    if settings.on_sqlite != (folder / SQLITE).exists():
        kinds = ("PostgreSQL", "SQLite") if settings.on_sqlite else ("SQLite", "PostgreSQL")
        raise SettingsError(
            f"the backup has a database of {kinds[0]}, and database_url is one of {kinds[1]}: set"
            f" database_url to an empty database of {kinds[0]}"
        )
    if not settings.on_sqlite:
        words = ("--no-owner", "--no-privileges", "--exit-on-error", "--single-transaction")
        _run("pg_restore", settings, *words, str(folder / DUMP))
        return
    target = Path(str(make_url(settings.database).database))
    if target.is_relative_to(settings.root):
        target = home / target.relative_to(settings.root)
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / SQLITE).replace(target)


def _run(program: str, settings: Settings, *words: str) -> None:
    """Its password goes through the environment, and not where every user can read it."""
    url, password = without_password(make_url(settings.database))
    try:
        tool = postgres_tools.fitting(program, _server_major(settings))
    except ConfigurationError as error:
        raise SettingsError(str(error)) from error
    environment = dict(os.environ)
    if password:
        environment["PGPASSWORD"] = password
    done = subprocess.run(  # noqa: S603 -- the installation's own program
        [tool.path, "--no-password", f"--dbname={url.render_as_string()}", *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        told = done.stderr.strip().replace("\n", "; ")[:_TOLD_CHARACTERS]
        raise SettingsError(f"{program} failed: {told}")


def without_password(url: URL) -> tuple[URL, str]:
    """As libpq reads it."""
    in_query = url.query.get("password", "")
    password = str(url.password or in_query or "")
    query = {name: value for name, value in url.query.items() if name != "password"}
    return URL.create(
        "postgresql", url.username, None, url.host, url.port, url.database, query
    ), password


def _server_major(settings: Settings) -> int:
    database = Database(settings.database)
    try:
        with database.engine.connect() as connection:
            number = connection.exec_driver_sql("SHOW server_version_num").scalar_one()
    finally:
        database.dispose()
    return int(number) // 10_000
