"""What comes of a source is kept by several threads at once, and nothing of it is mistaken."""

import asyncio
import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cell.migrations.conduit import Conduit
from cell.migrations.redis.follower import StreamFollower
from cell.migrations.redis.journal import Journal
from cell.migrations.redis.stream import KnownCommand
from cell.migrations.source_uri import SourceUri
from cell.specification import Size
from contract_tests.cell.migrations.replicating_source import (
    ReplicatingSource,
    command,
    replicating,
)
from contract_tests.cell.migrations.test_redis_streams import PING

# A source's copy of all its data; nothing here reads what is in it.
RDB = b"REDIS0011" + bytes(100)
KNOWN = {b"set": KnownCommand(-3, may_run=True)}


def test_what_is_condensed_is_kept_whatever_is_kept_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk takes its time for what came, while another thread puts the new copy in place."""
    journal = Journal(tmp_path)
    journal.fetched.write_bytes(RDB)
    journal.begin("a" * 40, 1000)
    journal.write(PING, [], 1000)
    journal.keep(1000 + len(PING), 0)
    journal.rotate()
    former, made = journal.known, tmp_path / "made"
    made.write_bytes(RDB)
    journal.write(PING, [], 1000 + len(PING))
    syncs, ended, write = threading.Event(), threading.Event(), os.fdatasync

    def slowly(descriptor: int) -> None:
        syncs.set()
        ended.wait(0.3)
        write(descriptor)

    monkeypatch.setattr(os, "fdatasync", slowly)
    keeping = threading.Thread(target=journal.keep, args=(1000 + 2 * len(PING), 0))
    keeping.start()
    syncs.wait()
    assert journal.condensed(made, former)
    ended.set()
    keeping.join()
    for each in (journal, Journal(tmp_path)):
        each.open()
        assert each.known.offset == 1000 + 2 * len(PING)
        assert all(path.exists() for path in (each.base(each.known.base), *each.logs))
        each.close()
    # What was copied anew meanwhile is not what was condensed.
    journal.open()
    journal.fetched.write_bytes(RDB)
    former = journal.known
    journal.begin("b" * 40, 5000)
    made.write_bytes(RDB)
    assert not journal.condensed(made, former)
    journal.close()


def test_what_is_copied_anew_after_a_cut_is_none_that_was_compared(tmp_path: Path) -> None:
    """A source that breaks off and has forgotten could put anything in the place of it."""
    storage = 10**9
    size = Size("small", 1, 2**29, storage, 20)
    instance = SimpleNamespace(
        site=SimpleNamespace(directory=tmp_path),
        ceiling_bytes=storage,
        record=SimpleNamespace(spec=SimpleNamespace(size=size)),
    )
    settings = SimpleNamespace(migration_silence_s=5.0, upgrade_timeout_s=60.0)
    record = SimpleNamespace(progress=None)
    work: Any = SimpleNamespace(settings=settings, instance=instance, record=record)

    async def cut(source: ReplicatingSource) -> None:
        uri = SourceUri("127.0.0.1", source.port, "", "", "", "off", None, "resp")
        conduit = Conduit(uri, ("127.0.0.0/8",))
        follower = StreamFollower(work, conduit, Journal(tmp_path), KNOWN)
        await follower.begin()
        source.send(command("SELECT", "0"), command("SET", "k", "v"))
        await follower.cut()
        assert (follower.changed, follower.hears) == (None, True)
        source.forgets = source.drops = True
        while source.fulls < 2 or not follower.hears:  # noqa: ASYNC110 - of another thread
            await asyncio.sleep(0.02)
        assert follower.changed == "all data was copied anew"
        await follower.end()
        assert not follower.hears

    with replicating(RDB) as source:
        asyncio.run(asyncio.wait_for(cut(source), 30))
