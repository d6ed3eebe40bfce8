"""A cell that root runs without bubblewrap: where its instances lie, and who its engines are."""

import os
import shutil
from typing import Any

import psutil
import pytest

from cell.layout import Layout
from contract_tests.by_day import one_in
from contract_tests.cell.instances.test_faults import engines
from contract_tests.cell.rig import Rig, new_id, spec


@pytest.mark.skipif(os.geteuid() != 0, reason="only root moves what engines must enter")
@pytest.mark.nightly
def test_instances_of_a_home_from_before_are_found_where_engines_can_go(make_rig: Any) -> None:
    """The home is closed, and engines ran as root in it, or by bubblewrap, which is gone now."""
    rig: Rig = make_rig()
    running, asleep = rig.make(), rig.make()
    passwords = {each: rig.reveal(each)["password"] for each in (running, asleep)}
    for each, password in passwords.items():
        made = rig.query(each, password, "CREATE TABLE kept AS SELECT 42 AS n")
        assert made.status_code == 200, made.text
    rig.action(asleep, "pause")
    # Killed, so that the engine lives on as it was: the next cell finds it among what it moves.
    rig.kill()
    assert not (rig.home / "outside").exists()
    if (former := Layout.make(rig.home).sockets).parent != rig.home:
        shutil.rmtree(former)
    for _ in range(2):
        rig.start(confine=False)
        assert (rig.home / "instances").resolve().parent == (rig.home / "outside").resolve()
        rig.action(asleep, "resume")
        for each, password in passwords.items():
            rig.status_is(each, "running")
            found = rig.query(each, password, "SELECT n FROM kept")
            assert found.json()["rows"] == [[42]]
            assert psutil.Process(rig.engine_pid(each)).uids().real != 0
        assert rig.terminate() == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root could run an engine as root")
def test_where_no_other_user_can_be_had_no_engine_is_offered(
    make_rig: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    rig: Rig = make_rig()
    told = rig.get("/v1/cell").json()
    assert told["engines"] == []
    assert {each["engine"] for each in told["refused"]} >= {"duckdb", "postgres", "valkey"}
    for each in told["refused"]:
        assert "engines must not run as root" in each["reason"]
        assert "install bubblewrap and util-linux" in each["remedy"]
    answer = rig.act("PUT", f"/v1/instances/{new_id()}", spec("inst_x"))
    assert answer.status_code == 422
    assert "engines must not run as root" in answer.text


# Slow for what it adds by day.
@pytest.mark.nightly
@pytest.mark.skipif(os.geteuid() != 0, reason="only root's engines have users of their own")
@pytest.mark.parametrize("is_told", one_in(2, [True, False]), ids=["told", "forgotten"])
def test_a_root_that_may_not_look_at_other_users_finds_its_engines(
    make_rig: Any, *, is_told: bool
) -> None:
    """As root in a container, who has few rights: two engines would write to one database."""
    few = "--bounding-set=-sys_ptrace,-sys_admin,-perfmon"
    rig: Rig = make_rig(under=("setpriv", few), confine=False)
    instance_id = rig.make(engine="valkey", engine_version="9.1")
    before = rig.engine_pid(instance_id)
    rig.kill()
    if not is_told:
        (rig.home / "instances" / instance_id / "process.json").unlink()
    rig.start()
    rig.status_is(instance_id, "running")
    assert engines(rig, instance_id) == [rig.engine_pid(instance_id)]
    assert (rig.engine_pid(instance_id) == before) is is_told
