"""Which extensions the owner of a PostgreSQL instance has, of which versions, and which not."""

from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from cell.engines.driver import Driver, EngineError
from cell.engines.postgres import PostgreSQL, extensions, sources
from cell.engines.postgres.sources import Source
from contract_tests.by_day import one_in
from contract_tests.engines.conftest import Subject
from contract_tests.engines.postgres_sessions import ask, newest, newest_lent, session, value

every_source = pytest.mark.parametrize(
    "subject",
    one_in(4, [("postgres", each) for each in ("18", "17", "16", "15")]),
    indirect=True,
)
AVAILABLE = "SELECT name FROM pg_available_extensions WHERE installed_version IS NULL ORDER BY 1"
# What makes each worth having: one use of it, and what comes of it.
USES = (
    ("pgcrypto", "SELECT encode(digest('a', 'sha1'), 'hex') LIKE '86f7e437%'"),
    ("pg_trgm", "SELECT similarity('word', 'words') > 0.5"),
    ("citext", "SELECT 'A'::citext = 'a'::citext"),
    ("hstore", "SELECT ('a=>1'::hstore -> 'a') = '1'"),
    ("unaccent", "SELECT unaccent('Hôtel') = 'Hotel'"),
    ("ltree", "SELECT 'a.b'::ltree <@ 'a'::ltree"),
    ("intarray", "SELECT '{1,2}'::int[] @@ '1&2'::query_int"),
    ("fuzzystrmatch", "SELECT levenshtein('a', 'b') = 1"),
    ("pg_stat_statements", "SELECT count(*) > 0 FROM pg_stat_statements"),
    ("vector", "SELECT '[1,2]'::vector <-> '[1,3]'::vector = 1"),
    ("uuid-ossp", "SELECT uuid_generate_v4() IS NOT NULL"),
)
# What each of them would reach: files, other servers, pages, the server's memory; the superuser,
# by a type of the owner's own where earthdistance's script means another extension's.
NEVER = (
    *(
        "adminpack",
        "dblink",
        "earthdistance",
        "file_fdw",
        "pageinspect",
        "pg_buffercache",
        "pg_prewarm",
    ),
    *("pg_surgery", "pg_walinspect", "plperlu", "plpython3u", "postgres_fdw", "xml2"),
)


def listed(subject: Subject) -> list[str]:
    driver = subject.driver
    assert isinstance(driver, PostgreSQL)
    return driver.extensions()[subject.spec.engine_version]


@every_source
def test_what_the_catalogue_lists_the_owner_creates_and_nothing_else(running: Subject) -> None:
    wanted = [name for name in listed(running) if name != "plpgsql"]
    others = {name for (name,) in ask(running, AVAILABLE)} - set(wanted)
    with session(running) as connection:
        for name in wanted:
            connection.execute(f'CREATE EXTENSION IF NOT EXISTS "{name}" CASCADE'.encode())
        for name in {*others, *NEVER}:
            with pytest.raises(psycopg.Error):
                connection.execute(f'CREATE EXTENSION "{name}"'.encode())
        for name, use in USES:
            if name in wanted:
                assert connection.execute(use.encode()).fetchone() == (True,), name
    assert not set(NEVER) & set(wanted)


@newest_lent
def test_the_default_version_has_contrib_and_vectors(lent: Subject) -> None:
    if not lent.driver.source.startswith("18.6 from PyPI"):
        pytest.skip("another installation is newer here")
    assert {name for name, _ in USES} - {"uuid-ossp", "pgcrypto"} <= set(listed(lent))


@pytest.mark.nightly
@newest
def test_statistics_of_statements_hold_none_of_ours(running: Subject) -> None:
    if "pg_stat_statements" not in listed(running):
        pytest.skip("this source has no pg_stat_statements")
    ask(running, "CREATE EXTENSION pg_stat_statements")
    running.accept(running.new_login(), running.login)
    ours = "SELECT query FROM pg_stat_statements WHERE query ~* 'scram-sha|alter role'"
    assert ask(running, ours) == []
    seen = "SELECT count(*) FROM pg_stat_statements WHERE query ~ 'CREATE EXTENSION'"
    assert value(running, seen) > 0


def test_a_control_file_without_its_library_is_not_listed(tmp_path: Path) -> None:
    control, libraries = tmp_path / "share" / "extension", tmp_path / "lib"
    control.mkdir(parents=True)
    libraries.mkdir()
    for name, more in (("hstore", ""), ("citext", ""), ("mine", "trusted = true"), ("pg_x", "")):
        text = f"default_version = '1'\nmodule_pathname = '$libdir/{name}'\n{more}\n"
        (control / f"{name}.control").write_text(text)
    for name in ("citext", "mine", "pg_x"):
        (libraries / f"{name}.so").touch()
    source = Source("made up", "18.1", tmp_path / "bin", tmp_path / "share", libraries)
    assert extensions.creatable(source) == ["citext", "mine"]


@pytest.mark.nightly
@pytest.mark.parametrize("subject", [("postgres", "16"), ("postgres", "15")], indirect=True)
def test_an_upgrade_without_an_extension_is_refused_and_nothing_changes(running: Subject) -> None:
    lacking = "vector" if "vector" in listed(running) else "pg_trgm"
    ask(running, "CREATE DATABASE more")
    with session(running, database="more") as connection:
        connection.execute(f"CREATE EXTENSION {lacking}".encode())
    newer = poorer(running, lacking)
    running.stop()
    former = running.spec
    with pytest.raises(EngineError, match=rf"does not have .*{lacking} \(in more\)"):
        running.run(
            newer.upgrade(running.site, former, replace(former, engine_version=newer.versions()[0]))
        )
    assert not list(running.site.directory.glob("next"))
    running.start()
    with session(running, database="more") as connection:
        connection.execute(f"DROP EXTENSION {lacking}".encode())


def poorer(running: Subject, lacking: str) -> Driver:
    """A driver with what this instance runs on, and a newer version without the extension."""
    found = sources.best(sources.find())
    without = [each for each in found.values() if not each.has(lacking)]
    newer = [each for each in without if int(each.major) > int(running.spec.engine_version)]
    if not newer:
        pytest.skip(f"every newer version here has {lacking}")
    return PostgreSQL(running.host, found=[found[running.spec.engine_version], newer[0]])
