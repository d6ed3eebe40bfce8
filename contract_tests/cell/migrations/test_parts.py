"""A part that is just being written when its migration is cancelled: nothing of it stays."""

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cell.migrations import spool
from cell.migrations.commands import Migrations
from cell.migrations.record import Migration
from specserver import Conflict


def test_a_cancel_waits_for_the_part_that_is_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    write = spool.write

    def slowly(*given: Any) -> None:
        begun.set()
        go_on.wait(10)
        write(*given)

    class Runs:
        async def cancel(self, instance: Any, record: Migration, _: str | None) -> None:
            record.status = "cancelling"
            spool.remove(instance)

    async def both() -> None:
        size = SimpleNamespace(storage_bytes=10**9)
        instance: Any = SimpleNamespace(
            instance_id="inst_X",
            site=SimpleNamespace(directory=tmp_path),
            record=SimpleNamespace(spec=SimpleNamespace(size=size)),
        )
        nothing: Any = SimpleNamespace()
        runs: Any = Runs()
        migrations = Migrations(nothing, nothing, runs)
        record = Migration("mig_X", "inst_X", "upload", None, "copy", dry_run=False)
        migrations._known["mig_X"] = record
        nothing.save = lambda _: None
        given = (instance, "mig_X", b"a part", "bytes 0-5/12")
        part = asyncio.ensure_future(migrations.take_part(*given))
        await asyncio.to_thread(begun.wait, 10)
        late = asyncio.ensure_future(migrations.take_part(*given))
        cancel = asyncio.ensure_future(migrations.cancel(instance, "mig_X"))
        await asyncio.sleep(0.05)
        go_on.set()
        assert (await part).received_bytes == 6
        await asyncio.wait({late, cancel})
        assert record.status == "cancelling"
        with pytest.raises(Conflict):
            await migrations.take_part(*given)

    monkeypatch.setattr(spool, "write", slowly)
    asyncio.run(both())
    assert not (tmp_path / spool.FOLDER).exists()
