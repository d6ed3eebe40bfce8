"""At its storage limit, a Redis or Valkey rewrites its log, and keeps nobody from freeing."""

import os
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import redis

from cell.engines.driver import Health, Room
from cell.engines.resp import storage
from cell.engines.resp.configuration import ADMINISTRATOR, DUMP
from cell.engines.resp.driver import RespFamily
from cell.runtime.folder_sizes import size_bytes
from contract_tests.cell.rig import SMALL, Rig, until
from contract_tests.cell.rig import running as running_cell
from contract_tests.engines.conftest import Subject, on_either_resp
from contract_tests.engines.speakers import ONCE

MB = 10**6
LIMIT, CEILING = 4 * MB, 30 * MB
VALUE_BYTES = MB // 2
# Its ceiling is 270 MB.
LEAST = {**SMALL, "name": "least", "storage_bytes": MB}


def client(subject: Subject) -> Any:
    return redis.Redis(
        unix_socket_path=str(subject.site.socket),
        username=subject.login.username,
        password=subject.login.password,
        retry=ONCE,
    )


def driver_of(subject: Subject) -> RespFamily:
    assert isinstance(subject.driver, RespFamily)
    return subject.driver


def look(subject: Subject, limit: int = LIMIT, ceiling: int = CEILING) -> int:
    """Answers what it used before."""
    used = size_bytes(subject.site.data)
    subject.run(driver_of(subject).hold_writes(subject.site, Room(used, limit, ceiling)))
    return used


def overwrite(own: Any, times: int = 12) -> None:
    for _ in range(times):
        own.set("key", os.urandom(VALUE_BYTES))


def add(own: Any, keys: Iterable[int] = range(12)) -> None:
    for number in keys:
        own.set(f"key-{number}", os.urandom(VALUE_BYTES))


def refused(own: Any, *words: str) -> bool:
    try:
        own.execute_command(*words)
    except redis.exceptions.NoPermissionError:
        return True
    return False


def fill(subject: Subject, own: Any) -> None:
    """With more data than its limit."""
    add(own)
    # Of a key that is not there, so that it changes nothing where it is not refused yet.
    until(
        lambda: look(subject) and not is_held(subject) and refused(own, "EXPIRE", "no-key", "9"),
        "the rewrite has ended, and what adds is refused",
    )
    assert refused(own, "SET", "more", "1")


def is_held(subject: Subject) -> bool:
    return driver_of(subject)._writers.wait(subject.site)


@on_either_resp
def test_writers_wait_until_the_log_is_as_short_as_the_data(running: Subject) -> None:
    with client(running) as own, client(running) as writer:
        overwrite(own)
        look(running)
        assert is_held(running)
        waiting = threading.Thread(target=writer.set, args=("late", "value"))
        waiting.start()
        # Neither readers, the cell's looks nor a rotation wait with them.
        until(lambda: "cmd=set" in str(own.execute_command("CLIENT", "LIST")), "it waits")
        assert len(own.get("key")) == VALUE_BYTES
        assert running.run(driver_of(running).health(running.site, running.login)) is Health.WELL
        running.accept(running.new_login(), running.login)
        assert waiting.is_alive()
        until(lambda: look(running) < LIMIT, "the log is short")
        look(running)
        waiting.join(60)
        assert not waiting.is_alive()
        assert own.get("late") == b"value"
        assert own.info("persistence")["aof_rewrites"] == 1
        assert not is_held(running)


@on_either_resp
def test_more_data_than_storage_may_be_removed_and_not_added_to(running: Subject) -> None:
    with client(running) as own:
        fill(running, own)
        assert not is_held(running)
        script = "return redis.call('SET', 'more', '1')"
        with pytest.raises(redis.exceptions.ResponseError, match=r"ACL|can't run this command"):
            own.eval(script, 0)
        for words in (
            *(("APPEND", "key-1", "x"), ("HSET", "h", "f", "v"), ("LPUSH", "l", "x")),
            *(("XADD", "s", "*", "f", "v"), ("RESTORE", "r", "0", "x"), ("COPY", "key-1", "k")),
            *(("EXPIRE", "key-1", "100"), ("FUNCTION", "LOAD", "#!lua name=a"), ("SORT", "l")),
        ):
            assert refused(own, *words), words
        assert len(own.get("key-1")) == VALUE_BYTES
        assert "the storage is full" in running.site.log.read_text()
        # A rotation and a start give back no rights.
        running.login = running.new_login()
        running.accept(running.login)
        with client(running) as anew:
            assert refused(anew, "SET", "more", "1")
        running.stop()
        running.accept(running.login)
        running.start()
    with client(running) as own:
        assert refused(own, "SET", "more", "1")
        own.delete(*(f"key-{number}" for number in range(8)))
        until(lambda: look(running) and not refused(own, "SET", "more", "1"), "there is room")
        assert own.dbsize() == 5
        fill(running, own)
        until(lambda: look(running, 10 * LIMIT) and not refused(own, "SET", "b", "1"), "it grew")
        assert not refused(own, "FLUSHALL")


@on_either_resp
def test_who_waits_when_writes_are_refused_is_told_so(
    running: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "PAUSED_MAX_S", 0.0)
    said: list[bool] = []
    with client(running) as own, client(running) as writer:
        add(own)
        monkeypatch.setattr(storage.Writers, "_set", _nothing)
        look(running)
        waiting = threading.Thread(target=lambda: said.append(refused(writer, "SET", "late", "1")))
        waiting.start()
        until(lambda: "cmd=set" in str(own.execute_command("CLIENT", "LIST")), "it waits")
        monkeypatch.undo()
        until(lambda: look(running) and not is_held(running), "nobody waits any more")
        waiting.join(60)
    assert said == [True]


async def _nothing(*_: Any, **__: Any) -> None:
    pass


@on_either_resp
def test_a_rewrite_that_does_not_fit_is_not_begun(running: Subject) -> None:
    with client(running) as own:
        add(own)
        look(running, ceiling=8 * MB)
        assert refused(own, "SET", "more", "1")
        assert own.info("persistence")["aof_rewrites"] == 0
        own.delete(*(f"key-{number}" for number in range(8)))
        until(lambda: look(running, ceiling=10 * MB) < LIMIT, "it is rewritten")


@on_either_resp
def test_a_server_rewrites_by_itself_only_where_there_will_be_room(running: Subject) -> None:
    """What it has is twice as long then, from 64 MiB on, and its data beside it."""
    assert own_rule(running) == "0"
    with client(running) as own:
        for ceiling, percent in (100 * MB, "100"), (70 * MB, "0"), (100 * MB, "100"):
            add(own, range(10))
            look(running, limit=20 * MB, ceiling=ceiling)
            assert own_rule(running) == percent


def own_rule(subject: Subject) -> str:
    async def asked() -> str:
        async with driver_of(subject)._writers._connected(subject.site) as connection:
            await connection.ask("ACL", "SETUSER", ADMINISTRATOR, "+config|get")
            name = "auto-aof-rewrite-percentage"
            return str((await connection.ask_nested("CONFIG", "GET", name))[1])

    return str(subject.run(asked()))


@on_either_resp
def test_a_log_is_rewritten_before_the_limit(
    running: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sooner than at twice its length, for which there would be no room."""
    monkeypatch.setattr(storage, "REST_S", 0.0)
    with client(running) as own:
        for keys, rewrites in (range(5), 1), (range(5, 6), 1), (range(6, 7), 2):
            add(own, keys)
            look(running)
            now = own.info("persistence")
            assert now["aof_rewrites"] == rewrites, now
            until(lambda: not own.info("persistence")["aof_rewrite_in_progress"], "it has ended")
        assert not is_held(running)
        assert not refused(own, "SET", "more", "1")


@on_either_resp
def test_a_snapshot_keeps_nobody_from_writing(running: Subject) -> None:
    with client(running) as own:
        (running.site.data.outside / DUMP).write_bytes(bytes(2 * LIMIT))
        own.set("key", "value")
        look(running)
        assert not is_held(running)
        assert own.info("persistence")["aof_rewrites"] == 0


@pytest.fixture
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with running_cell(tmp_path_factory.mktemp("resp-storage") / "cell") as made:
        yield made


@pytest.mark.nightly
@pytest.mark.parametrize("engine", ["redis", "valkey"])
def test_a_log_above_the_ceiling_does_not_keep_its_data_from_its_owner(
    rig: Rig, engine: str
) -> None:
    versions = {each["engine"]: each["versions"] for each in rig.get("/v1/cell").json()["engines"]}
    if not versions.get(engine):
        pytest.skip(f"no {engine} on this machine")
    instance_id = rig.make(engine=engine, engine_version=versions[engine][0], size=LEAST)
    rig.action(instance_id, "pause")
    folder = rig.home / "instances" / instance_id / "data" / "appendonlydir"
    (log,) = folder.glob("*.incr.aof")
    value = os.urandom(4 * MB)
    with log.open("ab") as file:
        for _ in range(80):
            file.write(b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$%d\r\n%s\r\n" % (len(value), value))
        file.write(b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$5\r\nvalue\r\n")
    assert rig.action(instance_id, "resume")["status"] == "running"
    until(lambda: rig.observe(instance_id)["storage_bytes"] < MB, "the log is rewritten")
    route = rig.route(instance_id)
    assert route is not None
    password = rig.reveal(instance_id)["password"]
    with redis.Redis(
        unix_socket_path=route["socket"], username="app", password=password, retry=ONCE
    ) as own:
        until(lambda: not refused(own, "SET", "other", "1"), "there is room")
        assert own.get("key") == b"value"
    rig.action(instance_id, "erase")
