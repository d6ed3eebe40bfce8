"""What a session that never ends keeps the installation of queues waiting for."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest

from cell.runtime.host import Host
from cell.sealing import read_or_make_key
from contract_tests.cell.queues.test_queues import make, problem
from contract_tests.cell.rig import Rig


def superuser_of(rig: Rig, instance_id: str) -> psycopg.Connection[tuple[Any, ...]]:
    """As the cell comes to the server: its sessions are the ones that it does not end."""
    host = SimpleNamespace(_key=read_or_make_key(rig.home / "seal.key"))
    site = SimpleNamespace(instance_id=instance_id)
    route = rig.route(instance_id)
    assert route is not None
    return psycopg.connect(
        host=str(Path(route["socket"]).parent),
        user="menagerie",
        password=Host.secret(cast("Host", host), cast("Any", site), "postgres"),
        dbname="postgres",
    )


@pytest.mark.nightly  # the server waits 10 s for the lock
def test_roles_that_cannot_be_made_now_are_a_503_that_is_worth_trying_again(
    shared_rig: Rig,
) -> None:
    queues = make(shared_rig)
    with superuser_of(shared_rig, queues.instance_id) as holder:
        # It keeps roles from being made, and nobody from logging in.
        holder.execute("LOCK TABLE pg_catalog.pg_authid IN SHARE ROW EXCLUSIVE MODE")
        began = time.monotonic()
        refused = queues.act("POST", body={"name": "late", "unlogged": False})
        problem(refused, 503, "the roles of the data API cannot be made now: a lock was not")
        assert refused.headers["retry-after"] == "1"
        assert time.monotonic() - began < 30.0
    assert queues.make("late") == "late"
