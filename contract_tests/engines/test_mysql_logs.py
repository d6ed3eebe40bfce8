"""The logs that MariaDB keeps of changes count as storage, and do not stay."""

import pytest

from cell.engines.mysql import storage
from contract_tests.cell.rig import until
from contract_tests.engines.conftest import Subject
from contract_tests.engines.mysql_sessions import administrator, on_mariadb, rows, session

MIB = 2**20


def log_bytes(subject: Subject) -> int:
    folder = subject.site.data.outside / "db"
    return sum(path.stat().st_size for path in folder.glob("aria_log.*"))


# Slow for what it adds by day.
@pytest.mark.nightly
@on_mariadb
def test_what_aria_logs_goes_when_it_is_not_needed(running: Subject) -> None:
    """By default a log has a gigabyte before another one is begun, whatever the tables have."""
    rows(running, "CREATE TABLE often (n INT PRIMARY KEY, v LONGBLOB) ENGINE=Aria TRANSACTIONAL=1")
    rows(running, "INSERT INTO often VALUES (1, REPEAT('x', 4000000))")
    for number in range(40):
        rows(running, f"UPDATE often SET v = REPEAT(CHAR({65 + number % 26}), 4000000)")
    with session(running.site, administrator(running)) as cursor:
        cursor.execute(storage.CHECKPOINT)
    until(lambda: log_bytes(running) < 32 * MIB, "the log is shorter")
    running.kill()
    running.start()
    assert rows(running, "SELECT LENGTH(v) FROM often") == [(4000000,)]
