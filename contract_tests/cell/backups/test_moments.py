"""Which moments a backup and the log after it lead to, and what is said of the others."""

import asyncio
from pathlib import Path
from unittest.mock import Mock

import pytest

from cell.backups.manifest import WalStart
from cell.backups.wal_store import WalStore
from cell.database import Database
from cell.engines.log_pieces import TIMELINE
from cell.engines.wal_sources import WalLook
from cell.instances.copied import Copied
from cell.instances.wal_chains import WalChain, WalChains
from cell.instances.wal_recoveries import WalRecoveries
from specserver import Conflict

INSTANCE, BACKUP = "inst_1", "bkp_1"
# What a backup is called that was complete at 16.5 s: log files note whole seconds.
CONSISTENT_AT = 17.0


@pytest.fixture
def chains(tmp_path: Path) -> WalChains:
    return WalChains(Database(tmp_path / "cell.db"))


@pytest.fixture
def chain(chains: WalChains) -> WalChain:
    chain = chains.begin(INSTANCE, "wal_1", WalLook(16.0, 0, None, TIMELINE, "8", None, None, 0))
    chains.add_base(chain, BACKUP, WalStart("wal_1", str(chain.segment(0)), CONSISTENT_AT))
    return chain


def refusal(chains: WalChains, at: float) -> str:
    recoveries = WalRecoveries(chains, Mock(spec_set=WalStore), Mock(spec_set=Copied))
    with pytest.raises(Conflict) as refused:
        asyncio.run(recoveries.plan(INSTANCE, BACKUP, at))
    return str(refused.value)


@pytest.mark.parametrize("archived_until", [None, 16.8])
def test_before_the_first_moment_it_is_said_when_that_will_be(
    chains: WalChains, chain: WalChain, archived_until: float | None
) -> None:
    if archived_until is not None:
        chains.advance(chain, archived_until, 100)
    told = refusal(chains, 17.0)
    assert "no moment after the backup bkp_1 is archived yet" in told
    assert told.endswith("the first one will be 1970-01-01T00:00:17.000Z")


@pytest.mark.parametrize("at", [16.0, 21.0])
def test_a_moment_outside_is_refused_with_those_that_can_be_restored(
    chains: WalChains, chain: WalChain, at: float
) -> None:
    chains.advance(chain, 20.4, 100)
    told = refusal(chains, at)
    assert "from 1970-01-01T00:00:17.000Z to 1970-01-01T00:00:20.400Z can be restored" in told


def test_a_backup_that_no_log_continues_leads_to_no_moment(chains: WalChains) -> None:
    assert refusal(chains, 17.0) == "no WAL is archived that continues the backup bkp_1"
