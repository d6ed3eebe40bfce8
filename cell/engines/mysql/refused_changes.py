"""A change in a binary log that a server refuses: tried with another storage engine, then told."""

import mmap
from dataclasses import dataclass
from typing import Any, Final

from cell.engines.driver import EngineError, FinalError
from cell.engines.mysql import binary_log
from cell.engines.wal_sources import LogPlace
from cell.runtime import engine_files
from cell.runtime.engine_files import EnginePath
from cell.timestamps import moment

# A session may choose what engine a table gets that names none, and the log does not say it. What
# InnoDB refuses, as a key that begins with another column than the one that counts, this one takes.
OTHER_ENGINE: Final = "SET GLOBAL default_storage_engine = MyISAM"
OWN_ENGINE: Final = "SET GLOBAL default_storage_engine = InnoDB"
# No room, no memory, a lock: another try may do.
PASSING: Final = frozenset({1021, 1030, 1037, 1041, 1114, 1205, 1213, 1317})


@dataclass(frozen=True)
class RefusedChange:
    """`ends` is where the next one begins in the file of that name; `at` is in unix seconds."""

    place: LogPlace
    file: str
    ends: int
    at: int

    def with_another_engine(self) -> list[str]:
        until = f"RELAY_LOG_FILE = '{self.file}', RELAY_LOG_POS = {self.ends}"
        return [OTHER_ENGINE, f"START SLAVE SQL_THREAD UNTIL {until}"]

    def error(self, number: int) -> EngineError:
        what = f"could not be applied (error {number})"
        if number in PASSING:
            return EngineError(f"a change in the binary log {what}")
        return FinalError(
            f"a change that was committed at {moment(self.at)} {what}: choose an earlier moment, or"
            " one after the next backup. The binary log does not say some settings of sessions that"
            " it may depend on (default_storage_engine, old_mode)"
        )


def refused(folder: EnginePath, told: dict[str, Any]) -> RefusedChange:
    """At which a replica has stopped whose status is `told`, and whose files are in `folder`."""
    file, offset = str(told["Relay_Log_File"]), int(told["Relay_Log_Pos"])
    number = int(file.rpartition(".")[2])
    at = 0
    with (
        engine_files.opened(folder / file) as opened,
        mmap.mmap(opened, 0, access=mmap.ACCESS_READ) as content,
    ):
        ends = len(content)
        for begins, kind, seconds, _ in binary_log.events(content):
            if begins < offset:
                continue
            at = at or seconds
            if kind == binary_log.GTID and begins > offset:
                ends = begins
                break
    return RefusedChange(LogPlace(number, offset), file, ends, at)
