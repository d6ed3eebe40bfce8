"""What a client was told is there is there after a migration, or the migration was not made."""

import contextlib
import os
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from cell.database import Database
from contract_tests.cell.migrations import redis_server
from contract_tests.cell.migrations.migration_calls import ENDED, observed
from contract_tests.cell.migrations.test_files import made, sent
from contract_tests.cell.rig import Rig, until

RECORD = "SELECT document FROM migrations WHERE migration_id = ?"
WRITES_MAX = 20_000


def client(rig: Rig, instance_id: str) -> redis.Redis:
    """Of one connection, which ends with the engine that it was let in to."""
    route, secret = rig.route(instance_id), rig.reveal(instance_id)
    assert route is not None
    login = {"username": secret["username"], "password": secret["password"]}
    retry = Retry(NoBackoff(), 0)
    return redis.Redis(unix_socket_path=route["socket"], retry=retry, **login)


@pytest.mark.timeout(120)
def test_nothing_is_lost_that_is_written_during_a_swap(migrating: Rig, tmp_path: Path) -> None:
    """The instance is looked at when nobody can write to it any more."""
    with redis_server.running(tmp_path / "server", diskless=True) as server:
        with server.client() as there:
            for number in range(14):
                there.set(f"k{number}", os.urandom(500_000))
            there.save()
        content = (server.folder / "dump.rdb").read_bytes()
    instance_id = made(migrating, "valkey")
    database, written = Database(migrating.home / "cell.db"), 0
    with client(migrating, instance_id) as here:
        here.ping()
        migration_id = sent(migrating, instance_id, content)

        def swaps() -> bool:
            row = database.row(RECORD, migration_id)
            return row is not None and '"swap":"begun"' in row[0]

        until(swaps, "the instance is looked at for the last time")
        with contextlib.suppress(redis.RedisError):
            while written < WRITES_MAX:
                here.set(f"w{written}", 1)
                written += 1

    def ended() -> bool:
        return observed(migrating, instance_id, migration_id)["status"] in ENDED

    until(ended, "the migration has ended")
    migrating.status_is(instance_id, "running")
    with client(migrating, instance_id) as here:
        assert sum(here.exists(f"w{number}") for number in range(written)) == written
        if written:
            # Of the last one, nobody was told whether it is there.
            assert here.dbsize() in {written, written + 1}
    seen = observed(migrating, instance_id, migration_id)
    assert (seen["status"] == "failed") == bool(written), (written, seen)
    assert not written or "data was written into the instance" in seen["reason"]
