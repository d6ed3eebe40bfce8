"""An instance whose upgrade failed goes on with the version that it had."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from cell.agent import Cell
from cell.engines.driver import EngineError
from cell.engines.resp import Valkey
from cell.layout import Site
from cell.settings import CellSettings
from cell.specification import Size, Spec
from contract_tests.cell.rig import CELL_ID, VALKEY, new_id
from specserver import Conflict

SIZE = Size("s0", 0.5, 2**30, 20 * 10**9, 60)
FORMER, WANTED = VALKEY["engine_version"], "99.9"
SPEC = Spec("valkey", FORMER, SIZE, "valkey-x.local.localhost", None, None, 86400.0)


@pytest.fixture
def settings(tmp_path: Path) -> CellSettings:
    key = bytes(32)
    return CellSettings(tmp_path / "cell", CELL_ID, key, engines=("valkey",), confine=False)


FAILURES = (
    (EngineError("its data is too old"), "its data is too old"),
    # What no driver is known to raise.
    (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), "an internal error"),
)


def test_an_instance_whose_upgrade_failed_runs_on(
    settings: CellSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [failure for failure, _ in FAILURES]

    async def fail(_driver: Valkey, _site: Site, _former: Spec, _wanted: Spec) -> None:
        raise left.pop(0)

    monkeypatch.setattr(Valkey, "versions", lambda _: (WANTED, FORMER))
    monkeypatch.setattr(Valkey, "upgrade", fail)

    async def upgrade() -> None:
        cell = Cell(settings)
        await cell.open()
        try:
            instance = await cell.lifecycle.put(new_id(), SPEC)
            wanted = replace(SPEC, engine_version=WANTED)
            for _, said in FAILURES:
                former = instance.process
                with pytest.raises(Conflict, match=f"{FORMER} to {WANTED} failed: {said}"):
                    await cell.lifecycle.put(instance.instance_id, wanted)
                assert instance.record.spec.engine_version == FORMER
                assert instance.status == "running"
                assert instance.process is not former
                login = cell.supervisor.login(instance)
                assert await instance.driver.ready(instance.site, login)
        finally:
            await cell.close()

    asyncio.run(upgrade())
