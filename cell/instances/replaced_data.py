"""The data of an instance, kept aside while other data is tried in its place.

While the former data lies there, it is the instance's: a cell that is killed meanwhile puts it back
when it starts again. All of this is done to an instance whose engine does not run.
"""

import secrets
from pathlib import Path

from cell.layout import Site, sync_folder
from cell.runtime import engine_files

# What is unpacked, copied or removed, and is of no use to a cell that starts.
PASSING = ("backup", "backup.part", "restore")
_GONE = "replaced-"


def set_aside(site: Site) -> None:
    """There is no data afterwards."""
    put_back(site)
    engine_files.rename(site.data, _former(site))
    sync_folder(site.directory)


def put_back(site: Site) -> bool:
    """False where nothing is aside."""
    former = _former(site)
    if not former.is_dir():
        return False
    engine_files.remove(site.data)
    engine_files.rename(former, site.data)
    sync_folder(site.directory)
    return True


def keep_new(site: Site) -> None:
    """From now on the new data is the instance's; the former is to be removed."""
    engine_files.rename(_former(site), site.directory / f"{_GONE}{secrets.token_hex(4)}")
    sync_folder(site.directory)


def is_pending(site: Site) -> bool:
    return _former(site).is_dir()


def clear(site: Site) -> None:
    """Removes what is of no use any more."""
    for name in engine_files.names(site.directory):
        if name in PASSING or name.startswith(_GONE):
            engine_files.remove(site.directory / name)


def _former(site: Site) -> Path:
    return site.directory / "data.former"
