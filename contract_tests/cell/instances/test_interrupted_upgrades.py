"""An upgrade has limits, and whoever deletes or erases the instance does not wait for its end."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cell.agent import Cell
from cell.engines.driver import EngineError
from cell.engines.resp import Valkey
from cell.instances.hosted import HostedInstance
from cell.layout import Site
from cell.settings import CellSettings
from cell.specification import Size, Spec
from contract_tests.cell.rig import CELL_ID, VALKEY, new_id
from specserver import Conflict, Unavailable

SIZE = Size("s0", 0.5, 2**30, 10**6, 60)
FORMER, WANTED = VALKEY["engine_version"], "99.9"
SPEC = Spec("valkey", FORMER, SIZE, "valkey-x.local.localhost", None, None, 86400.0)
HANGS = "trap '' TERM INT; while :; do sleep 1; done"
# More than two copies up to the ceiling of its size.
WRITES = f"fallocate -l 1G {{}}/too-much; {HANGS}"
LONG_S = 600.0


class Upgrading:
    """A cell whose upgrades run a program that does not end; `began` is set once one runs."""

    def __init__(self, settings: CellSettings) -> None:
        self.cell = Cell(settings)
        self.began = asyncio.Event()
        self.program = HANGS

    async def upgrade(self, site: Site, _former: Spec, _wanted: Spec) -> None:
        self.began.set()
        program = self.program.format(site.data.outside)
        try:
            await self.cell.host.run(site, ["/bin/sh", "-c", program], timeout_s=LONG_S)
        finally:
            (site.data.outside / "too-much").unlink(missing_ok=True)

    async def begin(self) -> tuple[HostedInstance, "asyncio.Task[HostedInstance]"]:
        instance = await self.cell.lifecycle.put(new_id(), SPEC)
        wanted = replace(SPEC, engine_version=WANTED)
        work = asyncio.create_task(self.cell.lifecycle.put(instance.instance_id, wanted))
        await self.began.wait()
        return instance, work


def run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    act: Callable[[Upgrading], Awaitable[None]],
    upgrade_timeout_s: float = LONG_S,
) -> None:
    settings = CellSettings(
        tmp_path / "cell",
        CELL_ID,
        bytes(32),
        engines=("valkey",),
        confine=False,
        upgrade_timeout_s=upgrade_timeout_s,
    )

    async def work() -> None:
        upgrading = Upgrading(settings)
        monkeypatch.setattr(Valkey, "versions", lambda _: (WANTED, FORMER))

        monkeypatch.setattr(Valkey, "upgrade", upgrading.upgrade)
        await upgrading.cell.open()
        try:
            async with asyncio.timeout(60):
                await act(upgrading)
        finally:
            await upgrading.cell.close()

    asyncio.run(work())


@pytest.mark.parametrize(
    ("verb", "status"),
    [
        ("delete", "stopped"),
        pytest.param("erase", "erased", marks=pytest.mark.nightly),
    ],
)
def test_a_deletion_ends_an_upgrade(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, status: str
) -> None:
    async def act(upgrading: Upgrading) -> None:
        instance, work = await upgrading.begin()
        lifecycle = upgrading.cell.lifecycle
        for other in (lifecycle.pause, lifecycle.resume):
            with pytest.raises(Unavailable, match="is being upgraded"):
                await other(instance.instance_id)
        with pytest.raises(Unavailable, match="is being upgraded"):
            await lifecycle.rotate(instance, 0)
        await getattr(lifecycle, verb)(instance.instance_id)
        assert instance.status == status
        with pytest.raises(Conflict, match="is being deleted"):
            await work
        assert instance.status == status
        assert not instance.leaving
        assert not upgrading.cell.host.strays(instance.site)

    run(tmp_path, monkeypatch, act)


@pytest.mark.parametrize(
    ("program", "within_s", "said"),
    [(HANGS, 1.0, "took longer than 1 s"), (WRITES, LONG_S, "larger than 0.27 GB")],
)
def test_an_upgrade_without_end_fails_and_the_instance_runs_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, within_s: float, said: str
) -> None:
    async def act(upgrading: Upgrading) -> None:
        upgrading.program = program
        instance, work = await upgrading.begin()
        with pytest.raises(Conflict, match=said):
            await work
        assert instance.record.spec.engine_version == FORMER
        assert instance.status == "running"

    run(tmp_path, monkeypatch, act, within_s)


def test_a_domain_leads_to_the_instance_that_was_told_of_it_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is upgraded hears of nothing before it is done, and a domain leaves it all the same."""
    host, other_host = "moved.example.com", "kept.example.com"

    async def act(upgrading: Upgrading) -> None:
        cell = upgrading.cell
        upgrading.program = "until [ -e {}/go ]; do sleep 0.05; done"
        former = await cell.lifecycle.put(new_id(), replace(SPEC, domains=(host, other_host)))
        await cell.lifecycle.pause(former.instance_id)
        wanted = replace(SPEC, engine_version=WANTED, domains=(host, other_host))
        work = asyncio.create_task(cell.lifecycle.put(former.instance_id, wanted))
        await upgrading.began.wait()
        second = replace(SPEC, host="valkey-y.local.localhost", domains=(host,))
        found = await cell.lifecycle.put(new_id(), second)
        assert (former.record.spec.domains, found.record.spec.domains) == ((other_host,), (host,))
        # Who may reach it is another matter at once, and stays so.
        shut = replace(wanted, allow_cidrs=("192.0.2.0/24",), domains=(other_host,))
        told = asyncio.create_task(cell.lifecycle.put(former.instance_id, shut))
        await asyncio.sleep(0)
        assert former.record.spec.allow_cidrs == ("192.0.2.0/24",)
        (former.site.data.outside / "go").touch()
        await work
        assert former.record.spec.allow_cidrs == ("192.0.2.0/24",)
        await told
        assert former.record.spec.engine_version == WANTED
        assert (former.record.spec.domains, found.record.spec.domains) == ((other_host,), (host,))
        # Once it is told of it again, it has it back.
        await cell.lifecycle.put(former.instance_id, wanted)
        assert (former.record.spec.domains, found.record.spec.domains) == ((host, other_host), ())

    run(tmp_path, monkeypatch, act)


def test_a_list_that_is_told_beside_an_upgrade_holds_at_once_and_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no older specification brings back what it took away, nor loses what it brought."""
    host, further = "shown.example.com", "further.example.com"
    office = {"network_version": 3, "allow_cidrs": ["192.0.2.0/24"], "client_ca_pem": None}

    async def act(upgrading: Upgrading) -> None:
        cell = upgrading.cell
        upgrading.program = "until [ -e {}/go ]; do sleep 0.05; done"
        first = replace(SPEC, domains=(host,), network_version=1)
        instance = await cell.lifecycle.put(new_id(), first)
        await cell.lifecycle.pause(instance.instance_id)
        wanted = replace(first, engine_version=WANTED)
        work = asyncio.create_task(cell.lifecycle.put(instance.instance_id, wanted))
        await upgrading.began.wait()
        networks = cell.lifecycle.networks
        await networks.replace(instance, {**office, "domains": []})
        spec = instance.record.spec
        assert (spec.allow_cidrs, spec.domains) == (("192.0.2.0/24",), ())
        newer = {**office, "network_version": 4, "domains": [further]}
        adding = asyncio.create_task(networks.replace(instance, newer))
        # One that comes late, as one that was sent before.
        late = asyncio.create_task(cell.lifecycle.put(instance.instance_id, wanted))
        await asyncio.sleep(0.2)
        assert not adding.done()
        (instance.site.data.outside / "go").touch()
        for each in (work, adding, late):
            await each
        spec = instance.record.spec
        assert (spec.engine_version, spec.network_version) == (WANTED, 4)
        assert (spec.allow_cidrs, spec.domains) == (("192.0.2.0/24",), (further,))

    run(tmp_path, monkeypatch, act)


def test_what_an_engine_can_tell_before_it_is_stopped_costs_no_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(_site: Site, _spec: Spec) -> None:
        raise EngineError("a name is in the way")

    async def act(upgrading: Upgrading) -> None:
        lifecycle = upgrading.cell.lifecycle
        instance = await lifecycle.put(new_id(), SPEC)
        # Of one driver: that a class has it is remembered for good, for tests that come later.
        monkeypatch.setattr(instance.driver, "check_upgrade", refuse, raising=False)
        process = instance.process
        with pytest.raises(Conflict, match="a name is in the way"):
            await lifecycle.put(instance.instance_id, replace(SPEC, engine_version=WANTED))
        assert instance.usable
        assert instance.process is process
        assert not upgrading.began.is_set()

    run(tmp_path, monkeypatch, act)
