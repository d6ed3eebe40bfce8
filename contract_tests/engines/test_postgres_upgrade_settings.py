"""What is set and named in a cluster, and what an upgrade makes of it."""

from dataclasses import replace

import pytest

from cell.engines.driver import ChecksUpgrades, EngineError
from contract_tests.engines.conftest import Subject
from contract_tests.engines.postgres_sessions import ask, session, upgraded

# Each of these ended one of the tool's own sessions, or kept it from its work.
SETTINGS = (
    "ALTER DATABASE app SET statement_timeout = '1ms'",
    "ALTER DATABASE app SET default_transaction_read_only = on",
    "ALTER DATABASE app SET search_path = own, public",
    "ALTER DATABASE app SET lock_timeout = '1ms'",
    "ALTER DATABASE app SET quote_all_identifiers = on",
    "ALTER ROLE app SET default_transaction_isolation = 'serializable'",
    "ALTER ROLE app IN DATABASE app SET work_mem = '123kB'",
    "ALTER ROLE own_role SET DateStyle = 'German'",
    "ALTER DATABASE app SET role = 'own_role'",
)
STORED = """
SELECT datname, rolname, setconfig FROM pg_db_role_setting
LEFT JOIN pg_database d ON d.oid = setdatabase LEFT JOIN pg_roles r ON r.oid = setrole
ORDER BY 1, 2
"""
MULE = "CREATE DATABASE mule ENCODING 'MULE_INTERNAL' LOCALE 'C' TEMPLATE template0"
NAME = '"a\nb\r"'


def _newest(subject: Subject) -> str:
    version = subject.driver.versions()[0]
    if version == subject.spec.engine_version:
        pytest.skip("there is no newer version on this machine")
    return version


@pytest.mark.nightly
@upgraded
def test_an_upgrade_takes_settings_along_and_does_not_work_with_them(running: Subject) -> None:
    wanted = replace(running.spec, engine_version=_newest(running))
    ask(running, "CREATE TABLE kept (n int)")
    if running.spec.engine_version != "15":
        ask(running, "CREATE ROLE own_role")
        ask(running, f"CREATE ROLE {NAME}")
    settings = SETTINGS if running.spec.engine_version != "15" else SETTINGS[:-2]
    with session(running, database="postgres") as connection:
        for statement in settings:
            connection.execute(statement.encode())
        stored = connection.execute(STORED.encode()).fetchall()
    running.stop()
    running.run(running.driver.upgrade(running.site, running.spec, wanted))
    running.spec = wanted
    running.start()
    with session(running, database="postgres") as connection:
        assert connection.execute(STORED.encode()).fetchall() == stored


@pytest.mark.nightly
@upgraded
def test_databases_that_cannot_be_upgraded_are_told_while_the_instance_runs(
    running: Subject,
) -> None:
    wanted, driver = replace(running.spec, engine_version=_newest(running)), running.driver
    assert isinstance(driver, ChecksUpgrades)
    for statement, told in (
        (f"CREATE DATABASE {NAME}", r"contain line breaks: 'a\nb\r'"),
        (MULE, "without a conversion to UTF8: mule"),
        ("CREATE DATABASE closed ALLOW_CONNECTIONS false", "allow no connections: closed"),
    ):
        running.run(driver.check_upgrade(running.site, wanted))
        ask(running, statement)
        with pytest.raises(EngineError, match="could not be upgraded") as refusal:
            running.run(driver.check_upgrade(running.site, wanted))
        assert told in str(refusal.value)
        # To its own version is no upgrade.
        running.run(driver.check_upgrade(running.site, running.spec))
        if statement is MULE:
            # It may be paused, or have been made meanwhile.
            running.stop()
            with pytest.raises(EngineError, match=told):
                running.run(driver.upgrade(running.site, running.spec, wanted))
            running.start()
        ask(running, f"DROP DATABASE {statement.split(' ')[2]}")
