"""What an owner leaves in an instance is looked at, and none of his code runs by it."""

import threading

import pymysql
import pytest

from contract_tests.cell.migrations.migration_calls import status_is
from contract_tests.cell.migrations.test_files import made, sent
from contract_tests.cell.migrations.test_mysql_dumps import MYSQL_8, rows
from contract_tests.cell.rig import Rig, until

CODE = (
    "CREATE TABLE heard (who VARCHAR(200)) ENGINE=Aria",
    "CREATE TABLE one (n INT)",
    "INSERT INTO one VALUES (1)",
    """CREATE FUNCTION note() RETURNS INT MODIFIES SQL DATA SQL SECURITY INVOKER
    BEGIN INSERT INTO app.heard VALUES (CURRENT_USER()); RETURN 1; END""",
    "CREATE SQL SECURITY INVOKER VIEW other AS SELECT n FROM one WHERE note() = n",
    "CREATE TABLE zz (n INT)",
)
SWAP = "RENAME TABLE zz TO kept, other TO zz, kept TO other"
HEARD = "SELECT DISTINCT who FROM heard"


@pytest.mark.nightly
@pytest.mark.timeout(200)
def test_a_view_in_the_place_of_a_table_runs_nothing_with_more_rights(migrating: Rig) -> None:
    """Between the moment at which tables are listed, and the one at which they are counted."""
    instance_id = made(migrating, "mariadb")
    for each in (*CODE, *(f"CREATE TABLE a{n} (n INT)" for n in range(100))):
        rows(migrating, instance_id, each)
    ended = threading.Event()
    route, secret = migrating.route(instance_id), migrating.reveal(instance_id)
    assert route is not None
    given = {"user": secret["username"], "password": secret["password"], "database": "app"}

    def swap() -> None:
        with pymysql.connect(unix_socket=route["socket"], **given) as connection:
            while not ended.is_set():
                with connection.cursor() as cursor:
                    cursor.execute(SWAP)

    def heard() -> bool:
        migration_id = sent(migrating, instance_id, MYSQL_8, dry_run=True)
        status_is(migrating, instance_id, migration_id, "failed")
        return bool(rows(migrating, instance_id, HEARD))

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        until(heard, "the view is read in place of the table", within_s=120)
    finally:
        ended.set()
        thread.join()
    assert rows(migrating, instance_id, HEARD) == [("app@%",)]
