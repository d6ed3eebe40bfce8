"""What is counted for the planner after an upgrade: in the background, and not for ever."""

import asyncio
import time

import pytest

from cell.engines.postgres import PostgreSQL
from cell.engines.postgres.statistics import OWED, owe
from contract_tests.engines.conftest import Subject
from contract_tests.engines.postgres_sessions import ask, newest_lent, value

# Counting a table calls it, and it catches that its statement is cancelled.
STUBBORN = (
    "CREATE TABLE public.plain AS SELECT 1 AS n",
    """CREATE FUNCTION public.stay() RETURNS void LANGUAGE plpgsql AS $$ BEGIN LOOP
    BEGIN PERFORM pg_catalog.pg_sleep(1000); EXCEPTION WHEN query_canceled THEN NULL; END;
    END LOOP; END $$""",
    """CREATE FUNCTION public.staying(n int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN
    IF session_user = 'menagerie' AND (SELECT backend_type FROM pg_catalog.pg_stat_activity
        WHERE pid = pg_catalog.pg_backend_pid()) = 'client backend' THEN
        PERFORM public.stay();
    END IF;
    RETURN n; END $$""",
    "CREATE TABLE public.stubborn (n int)",
    # Not after the rows: that would count them.
    "CREATE INDEX ON public.stubborn (public.staying(n))",
    "INSERT INTO public.stubborn SELECT generate_series(1, 1000)",
)
COUNTING = """SELECT count(*) FROM pg_locks WHERE relation = 'public.stubborn'::regclass
AND mode = 'ShareUpdateExclusiveLock' AND granted"""


def _owing(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> PostgreSQL:
    for statement in STUBBORN:
        ask(subject, statement)
    assert isinstance(subject.driver, PostgreSQL)
    monkeypatch.setattr(subject.driver.counts, "begins_after_s", 0.0)
    owe(subject.site)
    return subject.driver


@pytest.mark.nightly
@newest_lent
def test_counting_ends_whatever_the_owners_functions_catch(
    lent: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = _owing(lent, monkeypatch)
    monkeypatch.setattr(driver.counts, "all_within_s", 3.0)
    began = time.monotonic()
    lent.run(driver.finish(lent.site))
    assert time.monotonic() - began < 30
    assert value(lent, COUNTING) == 0
    counted = "SELECT reltuples FROM pg_class WHERE relname = 'plain'"
    assert value(lent, counted) == 1
    # Not tried for ever.
    assert not (lent.site.directory / OWED).exists()


@pytest.mark.nightly
@newest_lent
def test_a_rotation_ends_counting(lent: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = _owing(lent, monkeypatch)
    new = lent.new_login()

    async def rotate() -> None:
        work = asyncio.create_task(driver.finish(lent.site))
        async with asyncio.timeout(60):
            while not await asyncio.to_thread(value, lent, COUNTING):  # noqa: ASYNC110 - the server tells nobody
                await asyncio.sleep(0.05)
            await driver.set_credentials(lent.site, [new])
            await work

    lent.run(rotate())
    assert value(lent, COUNTING, new) == 0
    assert (lent.site.directory / OWED).exists()
