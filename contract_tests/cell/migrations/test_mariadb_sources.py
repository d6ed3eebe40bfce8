"""A running MariaDB becomes the data of an instance, or the reason is told and nothing changes."""

from collections.abc import Iterator

import pytest

from contract_tests.cell.migrations import mariadb_server
from contract_tests.cell.migrations.mariadb_server import PASSWORD, MariaDBDatabase, MariaDBServer
from contract_tests.cell.migrations.migration_calls import CONNECTION, begun, connect, status_is
from contract_tests.cell.migrations.test_files import made
from contract_tests.cell.migrations.test_mysql_dumps import rows
from contract_tests.cell.rig import Rig

EVERYTHING = (
    """CREATE TABLE every (n BIGINT UNSIGNED PRIMARY KEY AUTO_INCREMENT, t VARCHAR(99) CHARACTER SET
        latin1, u TEXT, b LONGBLOB, c CHAR(5), d DECIMAL(30, 10), f FLOAT, g DOUBLE, h DATE,
        i DATETIME(6), j TIMESTAMP(3) NULL, k TIME(2), y YEAR, z BIT(12), e ENUM('a', 'ü,'),
        s SET('x', 'y'), o JSON, p POINT, q INET6, r UUID, v INT AS (y + 1) VIRTUAL,
        w INT AS (y + 2) STORED, x INT INVISIBLE DEFAULT 5, `odd``, 'name'` INT ZEROFILL)""",
    r"""INSERT INTO every (n, t, u, b, c, d, f, g, h, i, j, k, y, z, e, s, o, p, q, r, `odd``, 'name'`
        ) VALUES (9223372036854775807, 'ä', '💾\n\\''"', x'00ff0a5c27', 'a ', -1.5, 1e-20, 1.1e300,
        '0001-01-01', '2026-03-29 02:30:00.123456', '2026-03-29 02:30:00.123', '-838:59:59', 1901,
        b'101', 'ü,', 'x,y', '{"a": 1.0}', POINT(1, 2), '::1', UUID(), 7)""",
    "INSERT INTO every (u, f, g) SELECT REPEAT(seq, 20), seq / 7, seq / 7 FROM seq_1_to_2000",
    "CREATE TABLE none (n INT PRIMARY KEY)",
    "CREATE TABLE twins (n INT, t TEXT) ENGINE=Aria",
    "INSERT INTO twins VALUES (1, 'a'), (1, 'a'), (NULL, NULL), (NULL, '')",
    "CREATE VIEW seen AS SELECT n FROM none",
    "CREATE TRIGGER one_more BEFORE INSERT ON none FOR EACH ROW SET NEW.n = NEW.n + 1",
    "CREATE PROCEDURE many() SELECT COUNT(*) FROM every",
    "CREATE EVENT daily ON SCHEDULE EVERY 1 DAY DISABLE DO SELECT 1",
    "CREATE SEQUENCE counted START 5",
)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDBServer]:
    with mariadb_server.running(tmp_path_factory.mktemp("mariadb") / "server") as server:
        yield server


@pytest.fixture
def shop(source: MariaDBServer) -> Iterator[MariaDBDatabase]:
    database = source.new_database()
    yield database
    source.ask(f"DROP DATABASE IF EXISTS {database.name}")


@pytest.fixture
def mariadb_id(migrating: Rig) -> Iterator[str]:
    found = made(migrating, "mariadb")
    yield found
    migrating.action(found, "erase")


@pytest.mark.timeout(200)
def test_everything_comes_over_equal(
    migrating: Rig, mariadb_id: str, shop: MariaDBDatabase
) -> None:
    shop.ask(*EVERYTHING)
    migration_id = begun(migrating, mariadb_id, CONNECTION)
    connect(migrating, mariadb_id, migration_id, shop)
    seen = status_is(migrating, mariadb_id, migration_id, "completed")
    assert seen["verification"]["differences"] == []
    assert seen["verification"]["rows_compared"] == 2005
    assert PASSWORD not in str(seen)
    asked = "SELECT * FROM every ORDER BY n LIMIT 3"
    assert rows(migrating, mariadb_id, asked) == shop.ask(asked)
    assert shop.sessions() == 0
