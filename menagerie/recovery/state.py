"""The state of an installation: all that cannot be made anew, and nothing that instances hold."""

import json
import os
import shutil
import time
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final, Self

from cell.backups.sealed_objects import DamagedError
from cell.timestamps import moment
from menagerie import keys
from menagerie.errors import SettingsError
from menagerie.ownership import open_regular
from menagerie.recovery import databases
from menagerie.settings import Settings

FORMAT: Final = 1
CONTENTS: Final = "contents.json"
HOME: Final = "home"
CELL_DATABASE: Final = "cell/cell.db"
FILES: Final = (
    *("config.toml", "endpoints.json"),
    *("keys/seal.key", "keys/cursor.key", "keys/signing.key", "keys/cell.id"),
    *("cell/seal.key", "cell/recovery.key", "cell/recovery.pub"),
)
FOLDERS: Final = ("audit-log", "cell/pki")
_TRIES: Final = 20


@dataclass(frozen=True)
class StateContents:
    """What an archive says of itself."""

    format: int
    version: str
    made_at: str
    cell_id: str
    store_url: str

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Raises DamagedError."""
        try:
            found = json.loads((folder / CONTENTS).read_bytes())
            if found["format"] > FORMAT:
                raise DamagedError(
                    f"the backup was made by the newer version {found['version']}: recover with"
                    " that version"
                )
            return cls(**{name: found[name] for name in cls.__dataclass_fields__})
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise DamagedError("the backup does not say what it contains") from error


def collect(settings: Settings, folder: Path) -> StateContents:
    """Copy the state into the folder, while the service runs. Raises SettingsError.

    The control plane's database first: what its cell knows besides does no harm, and an instance
    that its cell does not know would.
    """
    contents = StateContents(
        *(FORMAT, version("menagerie"), str(moment(time.time()))),
        *(keys.cell_id(settings.root), settings.backup_store),
    )
    databases.copy_control(settings, folder)
    home = folder / HOME
    (home / "cell").mkdir(parents=True)
    if (settings.root / CELL_DATABASE).exists():
        databases.copy_sqlite(settings.root / CELL_DATABASE, home / CELL_DATABASE)
    _copy_files(settings.root, home)
    (folder / CONTENTS).write_text(json.dumps(asdict(contents)))
    return contents


def check(folder: Path) -> None:
    """Raises DamagedError where something lies in it that a home does not have from us."""
    for found in (folder / HOME).rglob("*"):
        name = str(found.relative_to(folder / HOME))
        is_known = name in FILES or name == CELL_DATABASE or name.startswith(FOLDERS)
        if found.is_file() and not is_known:
            raise DamagedError(f"the backup contains an unexpected file, {name}")


def _copy_files(root: Path, target: Path) -> None:
    """All as they are at one moment: a key and its certificate are renewed together."""
    for _ in range(_TRIES):
        names = _names(root)
        before = [_seen(root / name) for name in names]
        for name in names:
            _copy(root / name, target / name)
        if before == [_seen(root / name) for name in _names(root)]:
            return
        for name in names:
            (target / name).unlink()
    raise SettingsError("the files of the home do not stop changing; try again")


def _names(root: Path) -> list[str]:
    found = [name for name in FILES if (root / name).exists()]
    for folder in FOLDERS:
        for here, _, names in os.walk(root / folder):
            inner = Path(here).relative_to(root)
            found += [str(inner / name) for name in names if not name.startswith(".")]
    return sorted(found)


def _seen(path: Path) -> tuple[int, ...]:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        with os.fdopen(open_regular(source), "rb") as read, target.open("xb") as written:
            shutil.copyfileobj(read, written)
    except FileNotFoundError:
        # It went meanwhile, which is seen afterwards.
        target.touch()
    except OSError as error:
        raise SettingsError(f"{source} cannot be read: {error.strerror}") from error
