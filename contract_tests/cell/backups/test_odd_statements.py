"""Whatever an owner of MariaDB does comes back as it was, and comes back with no more rights."""

import hashlib
from pathlib import Path
from typing import Any

import pymysql
import pytest

from contract_tests.cell.backups.recovering import Archived, mysql_session
from contract_tests.cell.rig import Rig

FILE = Path(__file__).with_name("odd_statements.sql")
STATEMENTS = FILE.read_text().splitlines()[1:]
# Nobody may; the log must not have them do it either.
REFUSED = [
    "CREATE DEFINER=root@localhost PROCEDURE p() SELECT 1",
    "CREATE DEFINER=root@localhost SQL SECURITY DEFINER VIEW v AS SELECT * FROM mysql.global_priv",
    "DROP TABLE IF EXISTS numbers, mysql.proc",
    "ALTER TABLE numbers ADD COLUMN stolen TEXT DEFAULT (LOAD_FILE('/instance/conf/accounts.sql'))",
    "CREATE TABLE stolen AS SELECT * FROM mysql.global_priv",
    "GRANT ALL ON *.* TO app",
    "CREATE USER other IDENTIFIED BY 'x'",
    "SET GLOBAL read_only = 1",
    "BINLOG 'AAAA'",
]
SHAPE = """
SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE FROM information_schema.TABLES
WHERE TABLE_SCHEMA NOT IN ('mysql', 'information_schema', 'performance_schema', 'sys')
ORDER BY 1, 2
"""
ROUTINES = """
SELECT ROUTINE_SCHEMA, ROUTINE_NAME, ROUTINE_DEFINITION, DEFINER, SECURITY_TYPE, SQL_MODE
FROM information_schema.ROUTINES ORDER BY 1, 2
"""


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_what_an_owner_did_comes_back(archiving_rig: Rig) -> None:
    one = Archived.make(archiving_rig, engine="mariadb")
    base = one.base()
    refused = [each for each in STATEMENTS if not run(one, each)]
    assert len(refused) < len(STATEMENTS) / 4, refused
    assert not [each for each in REFUSED if run(one, each)]
    moment = one.write(1)
    before = content(one)
    one.archived_until(moment)
    run(one, "DROP DATABASE app")
    answer = one.restore(base, moment)
    assert answer.status_code == 200, (answer.text, one.site.log.read_text()[-3000:])
    found = content(one)
    assert sorted(found) == sorted(before)
    assert {name for name, told in before.items() if found[name] != told} <= {"app.other_engine"}
    for each in REFUSED:
        assert not run(one, each), each


def run(one: Archived, statements: str) -> bool:
    """Whether all of them were taken."""
    try:
        with mysql_session(one) as connection:
            cursor = connection.cursor()
            for each in split(statements):
                cursor.execute(each)
                cursor.fetchall()
    except (pymysql.err.MySQLError, UnicodeError):
        return False
    return True


def split(statements: str) -> list[str]:
    """Those of a routine's body, or of a name, stay together."""
    if "BEGIN" in statements:
        *first, last = statements.rpartition("END")
        return ["".join(first), *(each for each in last.split("; ") if each.strip("; "))]
    return [statements] if "/*!*/" in statements else statements.split("; ")


def content(one: Archived) -> dict[str, Any]:
    """What there is, by name: how it was made, and a digest of its rows."""
    found: dict[str, Any] = {}
    with mysql_session(one) as connection:
        cursor = connection.cursor()
        cursor.execute(SHAPE)
        for schema, name, kind in cursor.fetchall():
            quoted = f"`{schema}`.`{name.replace('`', '``')}`"
            cursor.execute(f"SHOW CREATE TABLE {quoted}")
            made = [str(each) for each in (cursor.fetchone() or ())[1:2]]
            rows: Any = None
            if kind != "SEQUENCE":
                cursor.execute(f"SELECT * FROM {quoted}")
                told = sorted(map(repr, cursor.fetchall()))
                rows = hashlib.sha256("\n".join(told).encode()).hexdigest()
            found[f"{schema}.{name}"] = (made, rows)
        cursor.execute(ROUTINES)
        found.update({f"routine {row[1]}": row for row in cursor.fetchall()})
    return found
