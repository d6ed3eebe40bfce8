"""Logins that may have been changed: looked at once a second, however often that is asked."""

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from cell.engines.driver import Driver, EngineError
from cell.instances import login_checks
from cell.instances.hosted import HostedInstance
from cell.layout import Layout, Site


class Changing:
    """A driver that finds a changed login each time, or fails."""

    def __init__(self, failure: EngineError | None = None) -> None:
        self.looks = 0
        self._failure = failure

    def proofs(self, _site: Site) -> dict[str, str]:
        return {"app": "4096:salt$key"}

    async def restore_logins(self, _site: Site) -> list[str]:
        self.looks += 1
        if self._failure is not None:
            raise self._failure
        return ["app"]


def instance(folder: Path, driver: Changing) -> HostedInstance:
    site = Layout.make(folder).site("inst_x", 1)
    site.log.parent.mkdir(parents=True)
    record: Any = type("Record", (), {"instance_id": "inst_x"})
    made = HostedInstance(record, site, cast("Driver", driver))
    made.became_usable(0)
    return made


def test_all_who_ask_at_once_wait_for_one_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login_checks, "EVERY_S", 0.2)
    driver = Changing()
    looked = instance(tmp_path, driver)
    assert looked.proofs == {"app": "4096:salt$key"}

    async def ask() -> float:
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(login_checks.check(looked) for _ in range(50)))
        assert driver.looks == 1
        began = loop.time()
        await asyncio.gather(*(login_checks.check(looked) for _ in range(50)))
        assert driver.looks == 2
        return loop.time() - began

    assert asyncio.run(ask()) > 0.1
    assert looked.site.log.read_text().count("the password of app was changed") == 2


def test_an_engine_that_cannot_be_told_is_no_fault(tmp_path: Path) -> None:
    driver = Changing(EngineError("it does not answer"))
    asyncio.run(login_checks.check(instance(tmp_path, driver)))
    assert driver.looks == 1


def test_one_that_does_not_run_is_not_asked(tmp_path: Path) -> None:
    driver = Changing()
    looked = instance(tmp_path, driver)
    looked.became_unusable()
    asyncio.run(login_checks.check(looked))
    assert driver.looks == 0
