"""A Redis or Valkey whose function libraries keep it from starting starts without them."""

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import redis

from cell.engines.driver import Driver, EngineError
from cell.engines.resp import files, functions
from cell.instances.hosted import HostedInstance
from cell.instances.starting import SlowError, sparing
from cell.layout import Layout, Site
from contract_tests.cell.backups.backup_calls import back_up, left_beside
from contract_tests.cell.rig import SMALL, Rig, running, until
from contract_tests.engines.conftest import Subject, on_either_resp
from contract_tests.engines.speakers import ONCE
from contract_tests.engines.test_resp_upkeep import client, load, names

LIBRARY = "#!lua name={0}\nredis.register_function('{0}', function() return '{1}' end)"
ENDLESS = "#!lua name=endless\nwhile true do end"
WORDS = ["FUNCTION", "LOAD", "REPLACE", ENDLESS]
CALL = f"*{len(WORDS)}\r\n" + "".join(f"${len(each)}\r\n{each}\r\n" for each in WORDS)


@on_either_resp
def test_libraries_are_left_out_and_put_back(subject: Subject) -> None:
    subject.start()
    with client(subject) as own:
        own.set("dumped", CALL)
        own.function_load(LIBRARY.format("long", "x" * 20_000))
        load(own, "short", "deleted")
        _rewrite(subject)
        own.set("logged", CALL)
        own.execute_command("function", "delete", "deleted")
        with own.pipeline(transaction=True) as both:
            both.execute_command("FUNCTION", "LOAD", LIBRARY.format("late", "y"))
            both.set("with", "it")
            both.execute()
    subject.stop()
    logs = files.log_files(subject.site.data)
    before = [path.outside.read_bytes() for path in logs]
    changes = subject.run(functions.leave_out(logs))
    subject.start()
    with client(subject) as own:
        assert names(own) == set()
        assert own.mget("dumped", "logged", "with") == [CALL, CALL, "it"]
    subject.stop()
    assert subject.run(functions.leave_out(logs)) == []
    functions.put_back(changes)
    assert [path.outside.read_bytes() for path in logs] == before
    subject.start()
    with client(subject) as own:
        assert names(own) == {"long", "short", "late"}


def _rewrite(subject: Subject) -> None:
    """Which its owner may not ask for: the service does now and then."""

    async def ask() -> None:
        async with subject.driver._connected(subject.site) as connection:  # type: ignore[attr-defined]
            await connection.ask("BGREWRITEAOF")

    with client(subject) as own:
        before = own.info("persistence")["aof_rewrites"]
        subject.run(ask())

        def done() -> bool:
            now = own.info("persistence")
            return now["aof_rewrites"] > before and not now["aof_rewrite_in_progress"]

        until(done, "the log is rewritten")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"REDIS",
        b"REDIS0011\xfa",
        b"REDIS0011\xf5\x8f",
        b"REDIS0011\xf5\x01a",
        b"*2\r\n$8\r\nFUNCTION\r\n$4",
        b"*1\r\n$-100\r\nx",
        b"*x\r\n$8\r\nFUNCTION\r\n",
        b"*99999999999\r\n$8\r\nset\r\n",
    ],
)
def test_a_file_that_is_no_log_is_no_fault(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "appendonly.aof"
    path.write_bytes(content)
    changes = asyncio.run(functions.leave_out([path, tmp_path / "none", tmp_path]))
    functions.put_back(changes)
    assert path.read_bytes() == content


def test_a_call_is_found_wherever_it_stands_in_a_long_log(tmp_path: Path) -> None:
    path = tmp_path / "appendonly.aof"
    before = functions.BLOCK_BYTES - len("*1\r\n$00000000\r\n\r\n*4\r\n") - 5
    path.write_text(f"*1\r\n${before:08}\r\n{'x' * before}\r\n{CALL}")
    (change,) = asyncio.run(functions.leave_out([path]))
    assert change.offset < functions.BLOCK_BYTES < change.offset + len(change.former)
    assert functions.NOTHING in path.read_bytes()


@pytest.mark.nightly
def test_a_log_of_any_length_leaves_the_loop_to_others(tmp_path: Path) -> None:
    """Its owner decides how long it is: hundreds of megabytes on the smallest size."""
    path = tmp_path / "appendonly.aof"
    path.touch()
    os.truncate(path, 256 << 20)
    turns = 0

    async def look() -> list[functions.UndoRecord]:
        nonlocal turns
        looking = asyncio.create_task(functions.leave_out([path]))
        while not looking.done():
            turns += 1
            await asyncio.sleep(0.001)
        return await looking

    assert asyncio.run(look()) == []
    assert turns > 10


def test_a_log_of_too_many_commands_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "appendonly.aof"
    content = CALL + "*1\r\n$4\r\nPING\r\n" * (2 * functions.COMMANDS_AT_ONCE)
    path.write_bytes(content.encode())
    monkeypatch.setattr(functions, "WITHIN_S", -1.0)
    assert asyncio.run(functions.leave_out([path])) == []
    assert path.read_bytes() == content.encode()
    monkeypatch.setattr(functions, "WITHIN_S", 60.0)
    assert len(asyncio.run(functions.leave_out([path]))) == 1


def test_a_log_is_left_as_it_is_once_nobody_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server may run again: a deletion was asked for, and taken back."""
    path = tmp_path / "appendonly.aof"
    path.write_bytes(CALL.encode())
    looking, go_on, done = threading.Event(), threading.Event(), threading.Event()
    calls, left_out = functions._calls, functions._leave_out_all

    def slow(content: Any) -> Iterator[int]:
        looking.set()
        assert go_on.wait(60)
        yield from calls(content)

    def leave_out(*given: Any) -> Any:
        changes = left_out(*given)
        done.set()
        return changes

    monkeypatch.setattr(functions, "_calls", slow)
    monkeypatch.setattr(functions, "_leave_out_all", leave_out)

    async def give_up() -> None:
        waiting = asyncio.create_task(functions.leave_out([path]))
        assert await asyncio.to_thread(looking.wait, 60)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

    asyncio.run(give_up())
    go_on.set()
    assert done.wait(60)
    assert path.read_bytes() == CALL.encode()


@pytest.fixture
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    home = tmp_path_factory.mktemp("hasty") / "cell"
    with running(home, start_timeout_s=4.0, load_timeout_s=8.0) as made:
        yield made


class Coded:
    """Stands for an engine whose owner's code can be left out."""

    code = "its function libraries"

    def __init__(self) -> None:
        self.done: list[str] = []

    async def leave_out(self, _site: Site) -> Callable[[], None] | None:
        self.done.append("left out")
        return lambda: self.done.append("put back")


@pytest.mark.parametrize(
    ("failures", "failed_before", "done"),
    [
        ([], False, ["start"]),
        # What ended it may have been something else, which passed.
        ([EngineError("it exited")], False, ["start"]),
        ([EngineError("it exited")], True, ["start", "left out", "start"]),
        ([SlowError("too slow")], False, ["start", "left out", "start"]),
        # The code was not what kept it from starting.
        ([SlowError("too slow")] * 2, False, ["start", "left out", "start", "put back"]),
    ],
)
def test_code_is_left_out_only_where_that_helps(
    tmp_path: Path, failures: list[EngineError], failed_before: bool, done: list[str]
) -> None:
    driver = Coded()
    site = Layout.make(tmp_path).site("inst_x", 1)
    site.log.parent.mkdir(parents=True)
    record: Any = type("Record", (), {"instance_id": "inst_x"})
    instance = HostedInstance(record, site, cast("Driver", driver))
    if failed_before:
        instance.start_failed("it exited")
    left = list(failures)

    async def start(_instance: HostedInstance, _once_more: bool) -> None:
        driver.done.append("start")
        if left:
            raise left.pop(0)

    starts = done[-1] == "start" and done.count("start") > len(failures)
    with contextlib.nullcontext() if starts else pytest.raises(EngineError):
        asyncio.run(sparing(instance, start))
    assert driver.done == done
    told = "started without its function libraries"
    assert (told in (instance.reason or "")) is ("left out" in done and starts)


def _with_endless_library(hasty: Rig) -> tuple[str, Any]:
    """Paused; its library ended with the release it was loaded into, and does not with the next."""
    cell = hasty.get("/v1/cell").json()
    versions = {each["engine"]: each["versions"] for each in cell["engines"]}
    if not versions.get("valkey"):
        pytest.skip("no valkey-server on this machine")
    instance_id = hasty.make(engine="valkey", engine_version=versions["valkey"][0], size=SMALL)
    route = hasty.route(instance_id)
    assert route is not None
    password = hasty.reveal(instance_id)["password"]
    own: Any = redis.Redis(
        unix_socket_path=route["socket"], username="app", password=password, retry=ONCE
    )
    own.set("kept", "value")
    hasty.action(instance_id, "pause")
    folder = hasty.home / "instances" / instance_id / "data" / "appendonlydir"
    (log,) = folder.glob("*.incr.aof")
    with log.open("a") as file:
        file.write(CALL)
    return instance_id, own


@pytest.mark.nightly
def test_a_server_starts_without_libraries_that_never_end(hasty: Rig) -> None:
    instance_id, own = _with_endless_library(hasty)
    seen = hasty.action(instance_id, "resume")
    assert seen["status"] == "running"
    assert "started without its function libraries" in seen["status_reason"]
    assert own.get("kept") == b"value"
    assert own.function_list() == []


@pytest.mark.nightly
def test_libraries_that_never_end_keep_nothing_from_being_backed_up(hasty: Rig) -> None:
    """The instance's own server may have taken them in another release, and never starts again."""
    instance_id, _ = _with_endless_library(hasty)
    verification = back_up(hasty, instance_id)["verification"]
    assert verification["method"] == "restored"
    assert "started without its function libraries" in verification["notice"]
    assert left_beside(hasty, instance_id) == set()


def test_code_is_not_looked_for_where_the_start_was_ended_for_a_deletion(tmp_path: Path) -> None:
    driver = Coded()
    site = Layout.make(tmp_path).site("inst_x", 1)
    record: Any = type("Record", (), {"instance_id": "inst_x"})
    instance = HostedInstance(record, site, cast("Driver", driver))
    instance.start_failed("it exited")
    instance.leaving = 1

    async def start(_instance: HostedInstance, _once_more: bool) -> None:
        raise EngineError("it was ended")

    with pytest.raises(EngineError, match="it was ended"):
        asyncio.run(sparing(instance, start))
    assert driver.done == []
