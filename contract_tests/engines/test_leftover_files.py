"""What a killed engine left and its next start would remove does not count against its storage."""

from pathlib import Path

import pytest

from cell.engines import leftover_files
from cell.runtime.engine_files import EnginePath
from contract_tests.engines.conftest import Subject

# By engine: what goes, and what stays beside it.
FILES = {
    "postgres": (
        ["pg_snapshots/00000003-1", "pg_notify/0000", "pg_dynshmem/x", "base/pgsql_tmp/a.1/b"],
        ["base/5/16384", "base/5/16384_fsm", "pg_wal/0001", "pg_replslot/one/state", "PG_VERSION"],
    ),
    "duckdb": (["temp/duckdb_temp_block-1.block"], ["database.duckdb", "temp/mine"]),
    "mariadb": (["db/ibtmp1"], ["db/ibdata1", "db/shop/orders.ibd"]),
    "valkey": (["temp-1.rdb", "appendonlydir/temp-rewriteaof-1.aof"], ["appendonlydir/a.aof"]),
}
FILES["postgres"][0].extend(["base/5/t3_16391", "base/5/t3_16391_fsm", "base/5/t3_16391.1"])
FILES["redis"] = FILES["valkey"]


@pytest.mark.parametrize("subject", sorted(FILES), indirect=True)
def test_it_goes_before_the_start_and_nothing_else_does(subject: Subject) -> None:
    subject.site.make(None)
    data, (going, staying) = subject.site.data.outside, FILES[subject.driver.engine]
    for name in (*going, *staying):
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        (data / name).write_text("18")
    subject.run(subject.driver.provision(subject.site, subject.spec))
    assert [name for name in going if (data / name).exists()] == []
    assert [name for name in staying if not (data / name).exists()] == []


def test_links_lead_nowhere(tmp_path: Path) -> None:
    outside, data = tmp_path / "outside", tmp_path / "data"
    for folder in (outside, data):
        folder.mkdir()
    (outside / "kept").touch()
    (data / "temp").symlink_to(outside)
    (data / "more").mkdir()
    (data / "more" / "kept").symlink_to(outside / "kept")
    leftover_files.remove(EnginePath(data), "(temp|more)/.+")
    assert (outside / "kept").exists()
    assert not (data / "more" / "kept").is_symlink()
    with pytest.raises(NotADirectoryError):
        leftover_files.remove(EnginePath(data) / "temp", ".+")
    assert (outside / "kept").exists()
