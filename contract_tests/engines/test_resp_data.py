"""What Redis and Valkey keep: through kills, bombs, copies to other sites and other sizes."""

import contextlib
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis
from ulid import ULID

from cell.engines.driver import EngineError
from cell.engines.resp import connection, files
from cell.runtime.engine_files import EnginePath
from cell.specification import Size
from contract_tests.engines.conftest import UID, Subject, on_either_resp
from contract_tests.engines.resp_administrator import secret
from contract_tests.engines.speakers import ONCE

pytestmark = on_either_resp

LITTLE = Size("f0", 0.5, 128 * 2**20, 10**9, 20)
LOST = (redis.exceptions.RedisError, OSError)


def client(subject: Subject, **options: Any) -> redis.Redis:
    login = subject.login
    return redis.Redis(
        unix_socket_path=str(subject.site.socket),
        username=login.username,
        password=login.password,
        decode_responses=True,
        retry=ONCE,
        **options,
    )


def administrator(subject: Subject) -> redis.Redis:
    password = secret(subject)
    path = str(subject.site.socket)
    return redis.Redis(unix_socket_path=path, username="menagerie", password=password)


@pytest.mark.nightly
def test_a_copy_gives_up_an_engine_that_answers_nobody(
    running: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who looks whether an engine is well waits for the lock that the copy has."""
    monkeypatch.setattr(connection, "ANSWER_WITHIN_S", 0.5)
    with contextlib.suppress(*LOST), client(running, socket_timeout=0.5) as own:
        # No script that is stopped: it is within one call.
        own.eval("return string.find(string.rep('a', 1e5), string.rep('a?', 1e5) .. 'b')", 0)
    driver = running.driver
    copying = driver.snapshot(running.site, running.process, running.login, tmp_path / "copy")
    with pytest.raises(EngineError, match="no answer within"):
        running.run(copying)
    running.kill()


def test_a_killed_engine_keeps_every_write_it_acknowledged(running: Subject) -> None:
    for kill in range(3):
        acknowledged: list[list[int]] = [[] for _ in range(4)]
        enough = threading.Event()

        def write(
            mine: list[int],
            name: str,
            several: list[list[int]] = acknowledged,
            enough: threading.Event = enough,
        ) -> None:
            with contextlib.suppress(*LOST), client(running) as own:
                for number in range(1_000_000):
                    own.rpush(name, number)
                    mine.append(number)
                    if sum(map(len, several)) > 2_000:
                        enough.set()

        threads = [
            threading.Thread(target=write, args=(mine, f"{kill}-{i}"))
            for i, mine in enumerate(acknowledged)
        ]
        for thread in threads:
            thread.start()
        while not enough.wait(0.005):
            # As the cell does: a sync at work is what puts writes off under `everysec`.
            files.flush(running.site.data)
        running.kill()
        for thread in threads:
            thread.join()
        running.start()
        with client(running) as reading:
            for i, mine in enumerate(acknowledged):
                found = reading.lrange(f"{kill}-{i}", 0, -1)
                assert [int(number) for number in found[: len(mine)]] == mine


def test_a_branch_has_the_data_and_none_of_the_passwords(running: Subject, folder: Path) -> None:
    with client(running) as own:
        own.set("kept", "yes")
        own.set("passing", "yes", ex=1000)
        own.select(3)
        own.set("elsewhere", "yes")
        own.function_load("#!lua name=l\nredis.register_function('f', function() return 7 end)")
    running.run(running.driver.snapshot(running.site, running.process, running.login, folder))
    # Nothing of the copy stays among the data.
    assert [path.name for path in running.site.data.outside.iterdir()] == ["appendonlydir"]
    directory = running.site.directory.with_name(f"inst_{ULID()}")
    site = replace(
        running.site,
        instance_id=directory.name,
        uid=UID + 1,
        directory=directory,
        run=EnginePath(running.site.run.outside.with_name(directory.name.lower()[-26:])),
    )
    branch = replace(running, site=site, login=running.new_login(), process=None)
    branch.provision()
    branch.run(branch.driver.restore(site, folder))
    branch.start()
    try:
        assert not branch.works(running.login)
        assert not running.works(branch.login)
        with client(branch) as theirs:
            assert (theirs.get("kept"), theirs.fcall("f", 0)) == ("yes", 7)
            assert 0 < theirs.ttl("passing") <= 1000
            theirs.select(3)
            assert theirs.get("elsewhere") == "yes"
            theirs.flushall()
        with client(running) as own:
            assert own.get("kept") == "yes"
    finally:
        branch.stop()


def test_transactions_scripts_and_functions_are_read_back(running: Subject) -> None:
    with client(running) as own:
        with own.pipeline(transaction=True) as several:
            several.set("by transaction", 1).incr("by transaction").execute()
        own.eval("for i = 1, 2 do redis.call('INCR', KEYS[1]) end", 1, "by script")
        write = "redis.register_function('w', function(k) redis.call('SET', k[1], 2) end)"
        own.function_load(f"#!lua name=l\n{write}")
        own.fcall("w", 1, "by function")
    for end in (running.stop, running.kill):
        end()
        running.start()
        with client(running) as own:
            assert own.mget("by transaction", "by script", "by function") == ["2"] * 3
            assert own.fcall("w", 1, "again") is None


def test_a_rotation_ends_no_connection(running: Subject) -> None:
    with client(running, single_connection_client=True) as own:
        name = own.client_id()
        new = running.new_login()
        running.accept(new, running.login)
        assert own.client_id() == name
        running.login = new
        with client(running) as theirs:
            assert theirs.ping()


def test_a_size_is_taken_while_it_runs(running: Subject) -> None:
    assert running.process is not None
    with client(running) as own, administrator(running) as looking:
        before = own.info("memory")["maxmemory"]
        larger = Size("s1", 1.0, 2**31, 10**10, 1000)
        assert running.run(running.driver.resize(running.site, running.process, larger))
        assert own.info("memory")["maxmemory"] == 2 * before
        assert own.info("clients")["maxclients"] == 1048
        own.set("large", "x" * 100_000_000)
        with pytest.raises(EngineError, match="room for"):
            running.run(running.driver.resize(running.site, running.process, LITTLE))
        assert own.info("memory")["maxmemory"] == 2 * before
        assert looking.ping()


def test_what_is_full_refuses_writes_and_forgets_nothing(subject: Subject) -> None:
    subject.spec = subject.spec.resized(LITTLE)
    subject.start()
    with client(subject) as own:
        own.set("first", "kept")
        with pytest.raises(redis.exceptions.OutOfMemoryError):
            fill(own)
        assert own.get("first") == "kept"
        own.delete("key0", "key1", "key2")
        own.set("again", "room")
        # One value cannot take what is left beyond the limit.
        with pytest.raises(redis.exceptions.ResponseError):
            own.setrange("huge", 2**29 - 10, "x")


def fill(own: redis.Redis) -> None:
    for number in range(1_000):
        own.set(f"key{number}", "x" * 2**20)


BOMBS = {
    "a table": ("EVAL", "local t = {} while true do t[#t + 1] = string.rep('x', 1e6) .. #t end", 0),
    "a text": ("EVAL", "local t = 'x' while true do t = t .. t end", 0),
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_takes_no_more_than_the_size(subject: Subject, name: str) -> None:
    if not subject.host.confinement["memory"].enforced:
        pytest.skip("memory is not limited here")
    subject.spec = subject.spec.resized(LITTLE)
    subject.start()
    assert subject.process is not None
    with client(subject) as own:
        own.set("first", "kept")
        with pytest.raises(LOST):
            own.execute_command(*BOMBS[name])
    # Either the script was refused its memory or the kernel ended the process.
    if not subject.works(subject.login):
        subject.run(subject.process.ended())
        assert subject.host.memory_kills(subject.site) > 0
        subject.start()
    with client(subject) as own:
        assert own.get("first") == "kept"


@pytest.mark.nightly
def test_a_flood_of_scripts_takes_no_more_than_the_size(subject: Subject) -> None:
    if not subject.host.confinement["memory"].enforced:
        pytest.skip("memory is not limited here")
    subject.spec = subject.spec.resized(LITTLE)
    subject.start()
    with client(subject) as own:
        own.set("first", "kept")
        with contextlib.suppress(*LOST):
            for number in range(200):
                own.script_load(f"return '{number}{'x' * 2**20}'")
    process = subject.process
    assert process is not None
    if not subject.works(subject.login):
        subject.run(process.ended())
        subject.start()
    with client(subject) as own:
        assert own.get("first") == "kept"


def test_older_versions_are_not_gone_back_to(subject: Subject) -> None:
    former = replace(subject.spec, engine_version="99.0")
    with pytest.raises(EngineError, match=r"cannot read the data of 99\.0"):
        subject.run(subject.driver.upgrade(subject.site, former, subject.spec))
    former = replace(subject.spec, engine_version="7.0")
    subject.run(subject.driver.upgrade(subject.site, former, subject.spec))


def test_links_an_engine_left_are_not_followed(
    running: Subject, folder: Path, tmp_path: Path
) -> None:
    running.stop()
    neighbour = tmp_path / "neighbour"
    neighbour.mkdir()
    (neighbour / "appendonly.aof.1.base.rdb").write_text("private")
    log = running.site.data.outside / "appendonlydir"
    log.rename(log.with_name("aside"))
    log.symlink_to(neighbour)
    with pytest.raises(EngineError, match="append-only log is not a folder"):
        running.run(running.driver.snapshot(running.site, None, running.login, folder))
    folder.rmdir()
    log.unlink()
    log.with_name("aside").rename(log)
    (log / "appendonly.aof.9.base.rdb").symlink_to(neighbour / "appendonly.aof.1.base.rdb")
    with pytest.raises(OSError, match=r"base\.rdb"):
        running.run(running.driver.snapshot(running.site, None, running.login, folder))
    log.rename(log.with_name("temp-aside"))
    log.symlink_to(neighbour)
    empty = tmp_path / "empty"
    empty.mkdir()
    running.run(running.driver.restore(running.site, empty))
    assert (neighbour / "appendonly.aof.1.base.rdb").read_text() == "private"
    assert list(neighbour.iterdir()) == [neighbour / "appendonly.aof.1.base.rdb"]
