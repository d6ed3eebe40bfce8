"""What becomes of queues when their instance gets a newer version, is branched, or is killed."""

import os
import signal
from typing import Any

import pytest
from psycopg.errors import InsufficientPrivilege

from contract_tests.cell.queues.test_queues import Queues, make, versions
from contract_tests.cell.rig import Rig, until
from instance_services.queues import installation

LOGGED, UNLOGGED = "orders", "quick"
SEND = "SELECT pgmq_public.send(%s, '{}')"
POP = "SELECT msg_id FROM pgmq_public.pop(%s)"
# A sequence writes ahead so many of its values, and after a crash goes on behind them.
LEFT_OUT_MAX = 32
each = pytest.mark.parametrize("version", ["15", pytest.param(None, id="newest")])


def fill(queues: Queues) -> None:
    """Of each queue: 1 deleted, 2 archived, 3 hidden for an hour, 4 delayed, and 5 to read."""
    for name in (LOGGED, UNLOGGED):
        queues.make(name, unlogged=name == UNLOGGED)
        queues.permit(name, "anon")
        queues.send(name, {"n": 1}, {"n": 2}, {"n": 3})
        assert len(queues.read(name, timeout=3600)) == 3
        assert queues.remove(name, 1) == [1]
        assert queues.remove(name, 2, archive=True) == [2]
        queues.send(name, {"n": 4}, delay=3600)
        queues.send(name, {"n": 5, "text": "ä\u2028'\"\\"})


def branched(queues: Queues) -> Queues:
    source = queues.instance_id
    taken = queues.rig.action(source, "snapshot", {"label": "branch"})["snapshot_id"]
    version = queues.rig.observe(source)["engine_version"]
    branch = queues.rig.make(
        engine="postgres", engine_version=version, source_snapshot=f"{source}/{taken}"
    )
    return Queues(queues.rig, branch)


def shown(queues: Queues, name: str) -> dict[str, Any]:
    return {
        key: queues.list()[name][key]
        for key in ("unlogged", "depth", "hidden", "total_messages", "data_api_roles")
    }


def check_kept(queues: Queues, name: str, last: int = 5) -> None:
    found = shown(queues, name)
    assert last <= found.pop("total_messages") <= last + LEFT_OUT_MAX
    assert found == {
        "unlogged": name == UNLOGGED,
        "depth": 1,
        "hidden": 2,
        "data_api_roles": ["anon"],
    }
    (message,) = queues.read(name, timeout=3600)
    assert (message["message_id"], message["read_count"]) == (5, 1)
    assert message["body"] == {"n": 5, "text": "ä\u2028'\"\\"}
    assert queues.read(name) == [], "what was hidden stays so"
    check_working(queues, name, last)


def check_emptied(queues: Queues, name: str) -> None:
    found = shown(queues, name)
    assert (found["depth"], found["hidden"], found["data_api_roles"]) == (0, 0, ["anon"])
    check_working(queues, name, 5)


def check_working(queues: Queues, name: str, last: int) -> None:
    """By REST, by SQL, and by the data API: for whom it was, and for nobody else."""
    (sent,) = queues.send(name, {"sent": "by REST"})
    assert sent > last
    assert queues.remove(name, sent, archive=True) == [sent]
    with queues.session() as owner:
        archive = f"SELECT msg_id FROM pgmq.a_{name} ORDER BY msg_id"
        assert owner.execute(archive.encode()).fetchall() == [(2,), (sent,)]
    with queues.session("anon") as anon:
        assert anon.execute(SEND, [name]).fetchall() == [(sent + 1,)]
        assert anon.execute(POP, [name]).fetchall() == [(sent + 1,)]
        with pytest.raises(InsufficientPrivilege):
            anon.execute(f"SELECT * FROM pgmq.q_{name}".encode())
    with queues.session("service_role") as other:
        with pytest.raises(InsufficientPrivilege, match=f"permission denied for queue {name}"):
            other.execute(SEND, [name])
        queues.permit(name, "service_role")
        assert other.execute(SEND, [name]).fetchall() == [(sent + 2,)]
    assert queues.list()[name]["total_messages"] == sent + 2
    later = queues.make(f"later_{name}", unlogged=name == UNLOGGED)
    assert queues.send(later, {}) == [1]


@pytest.mark.parametrize("version", ["15", "16"])
@pytest.mark.nightly
def test_an_upgrade_keeps_queues(shared_rig: Rig, version: str) -> None:
    """The server is stopped in order before it, so that unlogged queues keep their messages too."""
    queues = make(shared_rig, version)
    newest = versions(shared_rig)[0]
    if newest == version:
        pytest.skip("there is no newer version on this machine")
    fill(queues)
    key = "once-and-before-the-upgrade:act"
    assert queues.send(LOGGED, {"n": 6}, delay=3600, key=key) == [6]
    assert queues.remove(LOGGED, 6) == [6]
    seen = shared_rig.observe(queues.instance_id)
    shared_rig.put(queues.instance_id, engine="postgres", engine_version=newest, host=seen["host"])
    assert queues.send(LOGGED, {"n": 6}, delay=3600, key=key) == [6], "the answer of before"
    with queues.session() as owner:
        assert owner.info.server_version // 10_000 == int(newest)
    check_kept(queues, LOGGED, last=6)
    check_kept(queues, UNLOGGED)


def crash(queues: Queues) -> None:
    os.kill(queues.rig.engine_pid(queues.instance_id), signal.SIGKILL)
    until(
        lambda: queues.rig.observe(queues.instance_id)["restarts"] == 1, "the engine starts again"
    )
    queues.rig.status_is(queues.instance_id, "running")


@pytest.mark.nightly
def test_a_branch_has_the_queues_and_after_a_crash_the_source_too(shared_rig: Rig) -> None:
    """At night each by itself, and of each version: what moves is alike in all."""
    queues = make(shared_rig)
    fill(queues)
    branch = branched(queues)
    check_kept(branch, LOGGED)
    check_emptied(branch, UNLOGGED)
    crash(queues)
    check_kept(queues, LOGGED)
    check_emptied(queues, UNLOGGED)


@each
@pytest.mark.nightly
def test_a_branch_has_the_queues(shared_rig: Rig, version: str | None) -> None:
    """And what a snapshot of a server that runs has: nothing in unlogged ones."""
    queues = make(shared_rig, version)
    fill(queues)
    branch = branched(queues)
    check_kept(branch, LOGGED)
    check_emptied(branch, UNLOGGED)
    check_kept(queues, LOGGED)
    check_kept(queues, UNLOGGED)


@pytest.mark.nightly
def test_a_snapshot_of_a_paused_instance_has_unlogged_queues_too(shared_rig: Rig) -> None:
    queues = make(shared_rig)
    fill(queues)
    shared_rig.action(queues.instance_id, "pause")
    branch = branched(queues)
    check_kept(branch, LOGGED)
    check_kept(branch, UNLOGGED)


@each
@pytest.mark.nightly
def test_ids_go_on_after_a_crash(shared_rig: Rig, version: str | None) -> None:
    """A message that is new never has the id of one that is archived, or with a worker."""
    queues = make(shared_rig, version)
    fill(queues)
    crash(queues)
    check_kept(queues, LOGGED)
    check_emptied(queues, UNLOGGED)


@pytest.mark.nightly
def test_queues_of_an_earlier_version_keep_their_ids_from_now_on(shared_rig: Rig) -> None:
    queues = make(shared_rig)
    persistence = "SELECT relpersistence::text FROM pg_class WHERE relname = %s"
    queues.list()
    with queues.session() as owner:
        owner.execute("SELECT pgmq.create_unlogged('Quick')")
        assert owner.execute(persistence, ["q_quick_msg_id_seq"]).fetchall() == [("u",)]
        owner.execute("UPDATE menagerie_queues.installed SET version = 1")
        owner.execute("DROP FUNCTION menagerie_queues.keep_ids")
        queues.list()
        assert owner.execute(persistence, ["q_quick_msg_id_seq"]).fetchall() == [("p",)]
        assert owner.execute(persistence, ["q_quick"]).fetchall() == [("u",)]
        owner.execute("SELECT pgmq.create_unlogged('later')")
        owner.execute("SELECT menagerie_queues.keep_ids('later')")
        assert owner.execute(persistence, ["q_later_msg_id_seq"]).fetchall() == [("p",)]
        found = owner.execute("SELECT version FROM menagerie_queues.installed").fetchall()
    assert found == [(installation.VERSION,)]
