"""MariaDB in a real cell: ordered, revealed, used on the socket of its route, rotated, branched."""

from collections.abc import Callable, Iterator
from typing import Any

import pymysql
import pytest

from contract_tests.cell.rig import GIB, LARGER, Rig, new_id, running
from contract_tests.engines.mysql_sessions import newest_mariadb


@pytest.fixture(scope="module")
def version() -> str:
    return newest_mariadb()


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory, version: str) -> Iterator[Rig]:
    with running(tmp_path_factory.mktemp("mysql") / "cell") as made:
        yield made


@pytest.fixture
def make(rig: Rig, version: str) -> Callable[..., str]:
    def order(**changes: Any) -> str:
        return rig.make(engine="mariadb", engine_version=version, **changes)

    return order


def ask(rig: Rig, instance_id: str, password: str, sql: str) -> list[Any]:
    """On the socket its route names, as the gateway does."""
    route = rig.route(instance_id)
    assert route is not None
    assert route["protocol"] == "mysql"
    connection = pymysql.connect(
        unix_socket=route["socket"],
        user="app",
        password=password,
        database="app",
        autocommit=True,
        ssl_disabled=True,
    )
    with connection, connection.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


def refused(rig: Rig, instance_id: str, password: str) -> bool:
    try:
        ask(rig, instance_id, password, "SELECT 1")
    except pymysql.err.OperationalError:
        return True
    return False


@pytest.mark.nightly
def test_an_instance_is_used_paused_resized_and_rotated(rig: Rig, make: Callable[..., str]) -> None:
    instance_id = make()
    first = rig.reveal(instance_id)
    assert first["username"] == "app"
    assert first["uri"].startswith(f"mysql://app:{first['password']}@{first['host']}:")
    ask(rig, instance_id, first["password"], "CREATE TABLE numbers AS SELECT 42 AS n")
    rig.action(instance_id, "pause")
    rig.action(instance_id, "resume")
    rig.action(instance_id, "resize", {"size": LARGER})
    second = rig.rotate(instance_id)
    for each in (first, second):
        found = ask(rig, instance_id, each["password"], "SELECT n FROM numbers")
        assert found == [(42,)]
    assert not refused(rig, instance_id, first["password"])
    pool = ask(rig, instance_id, second["password"], "SELECT @@innodb_buffer_pool_size")
    assert pool[0][0] > GIB // 2
    assert rig.action(instance_id, "delete")["status"] == "stopped"
    assert rig.action(instance_id, "erase")["status"] == "erased"
    assert not (rig.home / "instances" / instance_id).exists()


# By day shown of an engine that is quicker, in cell/.
@pytest.mark.nightly
def test_a_cell_that_dies_finds_its_server_again(rig: Rig, make: Callable[..., str]) -> None:
    instance_id = make(rotation_overlap_s=0)
    password = rig.reveal(instance_id)["password"]
    pid = rig.engine_pid(instance_id)
    ask(rig, instance_id, password, "CREATE TABLE numbers AS SELECT 42 AS n")
    rig.kill()
    assert ask(rig, instance_id, password, "SELECT n FROM numbers") == [(42,)]
    rig.start()
    rig.status_is(instance_id, "running")
    assert rig.engine_pid(instance_id) == pid
    newer = rig.rotate(instance_id)["password"]
    assert ask(rig, instance_id, newer, "SELECT n FROM numbers") == [(42,)]


@pytest.mark.nightly
def test_a_branch_begins_with_the_data_and_none_of_the_passwords(
    rig: Rig, make: Callable[..., str]
) -> None:
    source = make()
    password = rig.reveal(source)["password"]
    ask(rig, source, password, "CREATE TABLE numbers AS SELECT 42 AS n")
    made = rig.action(source, "snapshot", {"label": "branch"})
    branch = new_id()
    observed = rig.put(
        branch,
        engine="mariadb",
        engine_version=rig.observe(source)["engine_version"],
        source_snapshot=f"{source}/{made['snapshot_id']}",
    )
    assert observed["status"] == "running"
    own = rig.reveal(branch)["password"]
    assert own != password
    assert ask(rig, branch, own, "SELECT n FROM numbers") == [(42,)]
    assert refused(rig, branch, password)
    assert refused(rig, source, own)
