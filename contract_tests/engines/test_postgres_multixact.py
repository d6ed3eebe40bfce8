"""What PostgreSQL notes of transactions that hold a row together counts as storage, and goes."""

import contextlib
from dataclasses import replace

import pytest

from contract_tests.cell.rig import until
from contract_tests.engines.conftest import Subject
from contract_tests.engines.postgres_sessions import newest, session, superuser, value

OLDEST = "SELECT max(mxid_age(datminmxid)) FROM pg_database"
# Other rows each time, as who holds the same rows together is noted once.
HOLD = "SELECT count(*) FROM (SELECT 1 FROM held WHERE random() < 0.5 FOR SHARE) rows"
HOLDERS = 12
ROWS = 1000
WITHIN_S = 400.0


@newest
def test_it_is_looked_for_long_before_the_storage_is_full(running: Subject) -> None:
    most = int(value(running, "SHOW autovacuum_multixact_freeze_max_age"))
    assert 100_000 <= most <= running.spec.size.storage_bytes // 2_000


@pytest.mark.nightly
@pytest.mark.timeout(600)
@newest
def test_what_is_not_needed_goes_without_the_owner(running: Subject) -> None:
    running.stop()
    size = replace(running.spec.size, storage_bytes=160 * 10**6)
    running.spec = replace(running.spec, size=size)
    running.provision()
    running.start()
    with contextlib.ExitStack() as stack:
        holders = [stack.enter_context(session(running, running.login)) for _ in range(HOLDERS)]
        holders[0].execute(f"CREATE TABLE held AS SELECT generate_series(1, {ROWS}) AS n")
        for number in range(30 * HOLDERS):
            holder = holders[number % HOLDERS]
            holder.execute("ROLLBACK")
            holder.execute("BEGIN")
            holder.execute(HOLD)
        assert int(value(running, OLDEST)) > 100_000
    with session(running, superuser(running)) as connection:

        def oldest() -> int:
            ((age,),) = connection.execute(OLDEST).fetchall()
            return int(age)

        until(lambda: oldest() < 100_000, "it goes", WITHIN_S)
