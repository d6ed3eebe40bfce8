"""A log that takes more memory to recover than the size has, and a server that does not stay."""

import asyncio
from pathlib import Path

import pytest

from cell.engines.driver import EngineError
from cell.engines.postgres import server
from cell.runtime.process import LaunchError
from cell.specification import Size
from contract_tests.engines.conftest import START_S, Subject
from contract_tests.engines.postgres_sessions import newest, newest_lent, session, superuser, value

LITTLE = Size("little", 0.5, 2**29, 10**10, 20)
# So many pages to write that no checkpoint comes to its end before the server is killed.
DIRTY = (
    "CREATE TABLE precious (t text)",
    "INSERT INTO precious VALUES ('acknowledged')",
    "CREATE TABLE dirty (t text)",
    "ALTER TABLE dirty ALTER t SET STORAGE plain",
    "INSERT INTO dirty SELECT repeat('x', 1900) FROM generate_series(1, 41000)",
)
# Recovery holds it twice. Owners may not write such a record; others may come to be possible.
LARGE = "SELECT pg_logical_emit_message(true, 'p', repeat('x', 245 * 1024 * 1024))"


@newest
@pytest.mark.nightly
def test_a_large_record_is_recovered_with_what_is_lent(subject: Subject) -> None:
    if not subject.host.confinement["memory"].enforced:
        pytest.skip("memory is not limited here")
    subject.spec = subject.spec.resized(LITTLE)
    subject.start()
    assert subject.process is not None
    headroom, group = subject.host.headroom, subject.process.group
    # Whoever is lucky needs less to write it.
    headroom.give(group, LITTLE.memory_bytes)
    with session(subject, superuser(subject)) as connection:
        for statement in (*DIRTY, LARGE):
            connection.execute(statement.encode())
    subject.kill()
    subject.host.forget(subject.site)
    assert not starts(subject, lent=False)
    assert subject.host.memory_kills(subject.site) > 0
    assert starts(subject, lent=True)
    assert headroom.take_back(group, LITTLE.memory_bytes)
    assert value(subject, "SELECT t FROM precious") == "acknowledged"


def starts(subject: Subject, *, lent: bool) -> bool:
    process = subject.process = subject.run(subject.driver.start(subject.site, subject.spec))
    if lent:
        subject.host.headroom.give(process.group, LITTLE.memory_bytes)

    async def usable() -> bool:
        async with asyncio.timeout(START_S):
            while process.alive:
                if await subject.driver.ready(subject.site, subject.login):
                    return True
                await asyncio.sleep(0.05)
        return False

    return bool(subject.run(usable()))


@pytest.mark.nightly
@newest_lent
def test_a_server_that_ends_before_anybody_has_looked_at_it_does_not_open_its_data(
    lent: Subject, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lent.stop()
    lent.run(lent.driver.snapshot(lent.site, None, lent.login, folder))

    async def ends(*_: object, **__: object) -> None:
        raise LaunchError("the engine exited at once, with status 139")

    monkeypatch.setattr(server, "launch", ends)
    with pytest.raises(EngineError, match="the data cannot be opened"):
        lent.run(lent.driver.restore(lent.site, folder))
    monkeypatch.undo()
    lent.start()
