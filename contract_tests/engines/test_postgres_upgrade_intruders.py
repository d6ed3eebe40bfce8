"""Code of tenants where an upgrade evaluates it: it never runs as the superuser."""

import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ulid import ULID

from cell.engines.driver import EngineError
from cell.engines.postgres import server, upgrade
from cell.layout import Layout
from contract_tests.attacks.statements import sequences
from contract_tests.by_day import one_in
from contract_tests.engines import test_postgres_leftovers as leftovers
from contract_tests.engines.conftest import Subject
from contract_tests.engines.postgres_sessions import ask, session, superuser, upgraded, value
from contract_tests.engines.test_postgres_data import check_filled, fill, upgrade_after_a_kill

EVIL = """CREATE FUNCTION public.{0}(t text) RETURNS bool LANGUAGE plpgsql {1} AS $$ BEGIN
    IF current_user = 'menagerie' AND current_setting('server_version_num')::int > 160000
    AND NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = '{0}') THEN
        PERFORM pg_catalog.binary_upgrade_set_next_pg_authid_oid({2});
        EXECUTE 'CREATE ROLE {0} SUPERUSER LOGIN';
    END IF;
    RETURN true; END $$"""
# Each has its own function, so that it is seen which of them ran.
PLACES = (
    EVIL.format("evil_bound", "VOLATILE", 99990),
    "CREATE DOMAIN public.dom AS text CHECK (public.evil_bound(value))",
    "CREATE TABLE public.par (k public.dom, v int) PARTITION BY LIST (k)",
    "CREATE TABLE public.par1 PARTITION OF public.par FOR VALUES IN ('x')",
    EVIL.format("evil_constant", "VOLATILE", 99991),
    "CREATE DOMAIN public.other AS text CHECK (public.evil_constant(value))",
    "CREATE VIEW public.v AS SELECT '{x}'::public.other[] AS a",
    EVIL.format("evil_generated", "IMMUTABLE", 99992),
    "CREATE TABLE public.g (n int, b bool GENERATED ALWAYS AS (public.evil_generated('')) STORED)",
    EVIL.format("evil_key", "IMMUTABLE", 99993),
    "CREATE TABLE public.k (n bool) PARTITION BY LIST ((n AND public.evil_key('')))",
    EVIL.format("evil_sample", "VOLATILE", 99994),
    "CREATE DOMAIN public.sampled AS text CHECK (public.evil_sample(value))",
    (
        "CREATE TABLE public.s AS SELECT (n % 3)::text::public.sampled AS c"
        " FROM generate_series(1, 100) n"
    ),
    "ANALYZE public.s",
    """CREATE FUNCTION public.evil_in_sql() RETURNS bool LANGUAGE sql IMMUTABLE AS
    $$ SELECT public.evil_generated('') $$""",
    "CREATE TABLE public.q (b bool GENERATED ALWAYS AS (public.evil_in_sql()) STORED)",
)
# Counting a table for the planner calls it; it may do so later, under the limits of the size.
NOTES = (
    "CREATE TABLE public.ran (by text)",
    """CREATE FUNCTION public.note() RETURNS void LANGUAGE plpgsql AS
    $$ BEGIN INSERT INTO public.ran VALUES ('index'); END $$""",
    """CREATE FUNCTION public.noting(n int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN
    IF session_user = 'menagerie' AND (SELECT backend_type FROM pg_catalog.pg_stat_activity
        WHERE pid = pg_catalog.pg_backend_pid()) = 'client backend' THEN
        PERFORM public.note();
    END IF;
    RETURN n; END $$""",
    "CREATE TABLE public.noted AS SELECT generate_series(1, 100) AS n",
    "CREATE INDEX ON public.noted (public.noting(n))",
)
LEGITIMATE = (
    "CREATE FUNCTION public.twice(n int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT n * 2 -- é'",
    (
        "CREATE TABLE public.t (n int CHECK (public.twice(n) > 0), m int GENERATED ALWAYS AS"
        " (public.twice(n)) STORED)"
    ),
    "INSERT INTO public.t VALUES (21)",
    "CREATE INDEX ON public.t (public.twice(n))",
    "CREATE FUNCTION public.atomic() RETURNS int LANGUAGE sql RETURN public.twice(3)",
    "CREATE VIEW public.w AS SELECT public.atomic() AS n",
)
BODIES = """SELECT proname, prosrc FROM pg_proc WHERE pronamespace = 'public'::regnamespace
ORDER BY 1, 2"""


def _newest(subject: Subject) -> str:
    version = subject.driver.versions()[0]
    if version == subject.spec.engine_version:
        pytest.skip("there is no newer version on this machine")
    return version


def _upgrade(subject: Subject) -> None:
    former, wanted = subject.spec, replace(subject.spec, engine_version=_newest(subject))
    subject.stop()
    subject.run(subject.driver.upgrade(subject.site, former, wanted))
    subject.spec = wanted


@pytest.mark.nightly
@upgraded
def test_an_upgrade_follows_no_link_of_the_engine(running: Subject, tmp_path: Path) -> None:
    """The unit of it is in cell/runtime/test_engine_files.py."""
    tmp_path.chmod(0o755)
    (running.site.run.outside / server.PRIVATE).symlink_to(tmp_path)
    _upgrade(running)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
    running.start()


def _attack(subject: Subject) -> None:
    attacks = sequences("postgres", "upgrade")
    assert attacks
    for steps in attacks:
        with session(subject) as connection:
            for step in steps:
                connection.execute(step.encode())


def _nobody_came_in(subject: Subject) -> None:
    assert ask(subject, "SELECT rolname FROM pg_roles WHERE rolsuper") == [("menagerie",)]
    assert value(subject, "SELECT count(*) FROM pg_roles WHERE rolname = 'planted'") == 0
    assert value(subject, "SELECT t FROM public.indexed WHERE public.by_index(t) = 'x'") == "x"


def _make(subject: Subject) -> list[tuple[Any, ...]]:
    """What the owner made; answers the bodies of his functions."""
    with session(subject) as connection:
        for statement in (*PLACES, *NOTES, *LEGITIMATE):
            connection.execute(statement.encode())
    return ask(subject, BODIES)


def _ran_nothing_and_works(subject: Subject, version: str) -> None:
    assert value(subject, "SHOW server_version_num").startswith(version)
    assert ask(subject, "SELECT rolname FROM pg_roles WHERE rolsuper") == [("menagerie",)]
    assert ask(subject, "SELECT by FROM public.ran") == []
    assert ask(subject, "SELECT n, m FROM public.t") == [(21, 42)]
    assert value(subject, "SELECT n FROM public.w") == 6
    assert value(subject, "SELECT count(*) FROM public.s") == 100


@pytest.mark.nightly
@upgraded
def test_an_upgrade_keeps_the_data_and_takes_no_intruder_along(running: Subject) -> None:
    """All of them at once, each of whom comes alone at night."""
    version, former = _newest(running), running.spec.engine_version
    fill(running)
    _make(running)
    _attack(running)
    bodies = ask(running, BODIES)
    leftovers.plant(running)
    with session(running, superuser(running), "postgres") as connection:
        connection.execute("DROP DATABASE closed")
    upgrade_after_a_kill(running)
    _nobody_came_in(running)
    _ran_nothing_and_works(running, version)
    assert set(bodies) <= set(ask(running, BODIES))
    with session(running, superuser(running), "postgres") as connection:
        connection.execute("CREATE DATABASE closed")
    leftovers.check(running, makes_roles=former != "15")
    check_filled(running, former)


@upgraded
@pytest.mark.nightly
def test_an_upgrade_runs_no_code_of_the_owner_as_superuser(running: Subject) -> None:
    version, bodies = _newest(running), _make(running)
    _upgrade(running)
    running.start()
    _ran_nothing_and_works(running, version)
    assert ask(running, BODIES) == bodies


@upgraded
@pytest.mark.nightly
def test_no_attack_of_the_corpus_becomes_a_superuser_by_an_upgrade(running: Subject) -> None:
    _attack(running)
    _upgrade(running)
    running.start()
    _nobody_came_in(running)


REFUSED = {
    "domains public.dom": (
        (
            "CREATE DOMAIN public.dom AS text"
            " CHECK (pg_catalog.lo_export(1, value) = 1 AND value <> 'x')"
        ),
    ),
    "functions public.evil": (
        "CREATE FUNCTION public.evil(t text) RETURNS bool LANGUAGE sql RETURN t <> 'x'",
        "CREATE DOMAIN public.dom AS text CHECK (public.evil(value))",
    ),
    "domains public.late": (
        (
            "CREATE FUNCTION public.f(t text, n int = pg_catalog.lo_export(1, '/tmp/x'))"
            " RETURNS bool LANGUAGE plpgsql AS 'BEGIN RETURN true; END'"
        ),
        "CREATE DOMAIN public.late AS text CHECK (public.f(value))",
    ),
    "databases allow no connections: closed": (
        "CREATE DATABASE closed",
        "ALTER DATABASE closed ALLOW_CONNECTIONS false",
    ),
}


# By day an upgrade that is not refused.
@pytest.mark.nightly
@upgraded
@pytest.mark.parametrize("said", one_in(4, REFUSED))
def test_an_upgrade_is_refused_where_code_cannot_be_put_aside(running: Subject, said: str) -> None:
    _newest(running)
    former = running.spec.engine_version
    for statement in REFUSED[said]:
        ask(running, statement)
    with pytest.raises(EngineError, match="could not be upgraded") as refusal:
        _upgrade(running)
    assert said in str(refusal.value)
    assert "/" not in str(refusal.value)
    running.start()
    assert value(running, "SHOW server_version_num").startswith(former)


FAULT = """
                      failed check: Checking for incompatible "aclitem" data type

Data type checks failed:
Your installation contains the "aclitem" data type in user tables.
The internal format of "aclitem" changed in PostgreSQL version 16
so this cluster cannot currently be upgraded.

A list of the problem columns is in the file:
    /instance/both/data/pg_upgrade_output.d/1/tables_using_aclitem.txt

Failure, exiting"""


def test_what_an_upgrade_finds_fault_with_is_told(layout: Layout) -> None:
    site, new_site = (layout.site(f"inst_{ULID()}", os.getuid()) for _ in "12")
    site.log.parent.mkdir(parents=True)
    assert upgrade.note(site, new_site, OSError(FAULT)) == (
        'Your installation contains the "aclitem" data type in user tables. The internal format of'
        ' "aclitem" changed in PostgreSQL version 16 so this cluster cannot currently be upgraded.'
    )


def test_of_what_failed_in_an_upgrade_the_errors_are_kept(layout: Layout) -> None:
    site, new_site = (layout.site(f"inst_{ULID()}", os.getuid()) for _ in "12")
    folder = new_site.data.outside / "pg_upgrade_output.d" / "now" / "log"
    folder.mkdir(parents=True)
    site.log.parent.mkdir(parents=True)
    creating = "pg_restore: creating TABLE one of many\n" * 40_000
    error = "pg_restore: error: could not execute query: ERROR:  it is not allowed"
    (folder / "pg_upgrade_dump_5.log").write_text(
        f"{creating}{error}\nCommand was: {'x' * 10_000}\n"
    )
    (folder / "pg_upgrade_dump_6.log").write_text(f"{'y' * 10_000}\nthe end\n")
    why = upgrade.note(site, new_site, OSError("pg_upgrade failed: look into its log"))
    told = site.log.read_text()
    assert f"upgrade failed: {error}\n" in told
    assert "the end" not in told
    assert why == error
    assert "xxx" not in told
    assert len(told) < 2_000
