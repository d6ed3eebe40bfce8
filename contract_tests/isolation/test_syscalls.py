"""The filter of system calls: what a hostile program in an engine's place is answered."""

import asyncio
import contextlib
import ctypes
import ctypes.util
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ulid import ULID

from cell.layout import Layout
from cell.runtime import seccomp
from cell.runtime.confinement import Sandbox
from cell.runtime.host import Host
from cell.specification import Size
from contract_tests.by_day import one_in
from contract_tests.cell.rig import until
from contract_tests.isolation.syscalls import ASKING

SIZE = Size("s0", 0.5, 2**30, 10**9, 20)
WITHOUT = ("sh", "true", "setpriv", "unshare")
# libseccomp's names for the two machines.
MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}


@contextlib.contextmanager
def a_host(folder: Path) -> Iterator[tuple[Host, Layout]]:
    layout = Layout.make(folder / "cell")
    host = Host(str(layout.home), f"test-syscalls-{os.getpid()}", ("specserver",))
    layout = host.settle(layout)
    try:
        yield host, layout
    finally:
        for pid in host.strays():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        host.close()
        if layout.sockets.parent != layout.home:
            shutil.rmtree(layout.sockets)


@pytest.fixture(params=one_in(2, ["with bubblewrap", "without bubblewrap"]))
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Host, Layout]]:
    """A host, and where it keeps what is its engines'."""
    if request.param == "without bubblewrap":
        tools = tmp_path / "bin"
        tools.mkdir()
        for name in WITHOUT:
            if (found := shutil.which(name)) is not None:
                (tools / name).symlink_to(found)
        monkeypatch.setenv("PATH", str(tools))
    with a_host(tmp_path) as made:
        told = made[0].confinement["syscalls"]
        if not told.enforced:
            pytest.skip(f"syscalls is not enforced: {told.reason}")
        if not made[0].confinement["filesystem"].enforced and request.param == "with bubblewrap":
            pytest.skip("there is no bubblewrap here")
        yield made


def numbers(given: dict[str, seccomp.Numbers]) -> dict[str, int]:
    column = MACHINES[platform.machine()][0]
    found = {name: each[column] for name, each in given.items()}
    return {name: number for name, number in found.items() if number is not None}


def asked(host: Host, layout: Layout) -> dict[str, Any]:
    """What a program in an engine's place was answered."""
    site = layout.site(f"inst_{ULID()}", 299_140)
    site.make(host.owner(site))
    lists = json.dumps([numbers(seccomp.REFUSED), numbers(seccomp.LACKING), seccomp.NEWEST])

    async def run() -> str:
        python = await host.python()
        words = [python.program, "-I", "-S", "-c", ASKING, lists]
        process = await host.start(site, words, python.environment, SIZE)
        async with asyncio.timeout(60):
            await process.ended()
        return site.log.read_text()

    said = asyncio.run(run())
    host.forget(site)
    assert said.startswith("{"), said[-2000:]
    return dict(json.loads(said.splitlines()[0]))


def test_each_refused_call_fails_in_an_engines_place(place: tuple[Host, Layout]) -> None:
    found = asked(*place)
    assert {name: said for name, said in found["refused"].items() if said != "EPERM"} == {}
    assert {name: said for name, said in found["lacking"].items() if said != "ENOSYS"} == {}
    for name in ("trace", "personality", "key", "user namespace", "clone"):
        assert found[name] == "EPERM", name
    assert found["terminal"] == found["terminal, with more bits"] == "EPERM"
    assert found["new"] == found["x32"] == "ENOSYS"
    assert found["unix"] == "done"
    families = {said for name, said in found.items() if name.startswith("family")}
    assert families == {"EAFNOSUPPORT"}
    assert found.get("32 bits", "SIGSYS") == "SIGSYS"


def test_the_same_program_finds_more_where_nothing_is_filtered(tmp_path: Path) -> None:
    """So it is the filter that refuses: with the sandbox alone the kernel answers."""
    with a_host(tmp_path) as (host, layout):
        host._sandbox._filters = False
        found = asked(host, layout)
    answered = {name for name, said in found["refused"].items() if said != "EPERM"}
    assert answered >= {"process_vm_readv", "kcmp", "add_key", "name_to_handle_at", "mbind"}
    assert found["trace"] == found["personality"] == "done"
    assert found["family 2"] == found["family 16"] == "done"


def test_numbers_are_those_of_the_kernel() -> None:
    """As libseccomp knows them, of both machines, whichever this is."""
    name = ctypes.util.find_library("seccomp")
    if name is None:
        pytest.skip("libseccomp is not here to ask")
    library = ctypes.CDLL(name)
    # Later than the library of some distributions, and alike on all machines.
    later = {"statmount": 457, "listmount": 458}
    singles = {"clone": seccomp.CLONE, "ioctl": seccomp.IOCTL}
    sockets = dict(zip(("socket", "socketpair"), seccomp.SOCKETS, strict=True))
    listed = {**seccomp.REFUSED, **seccomp.LACKING, **singles, **sockets}
    for call, each in listed.items():
        for column, architecture in MACHINES.values():
            found = library.seccomp_syscall_resolve_name_arch(
                ctypes.c_uint32(architecture), call.encode()
            )
            # Below nothing: the machine has no such call, or the library does not know it.
            expected = found if found >= 0 else later.get(call)
            assert each[column] == expected, (call, hex(architecture))


def test_a_machine_without_a_list_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with a_host(tmp_path) as (host, _):
        told = host.confinement["syscalls"]
        assert not told.enforced
        assert "riscv64" in str(told.reason)


@pytest.mark.skipif(os.geteuid() != 0, reason="root's engines have a limit by their own uid")
def test_an_engine_is_limited_by_its_user_too(tmp_path: Path) -> None:
    with a_host(tmp_path) as (host, layout):
        if host.owner(site := layout.site(f"inst_{ULID()}", 299_141)) is None:
            pytest.skip("engines have no uid of their own here")
        site.make(host.owner(site))
        program = (
            "import time; print(open('/proc/self/limits').read(), flush=True); time.sleep(600)"
        )

        async def run() -> None:
            process = await host.start(site, [sys.executable, "-I", "-S", "-c", program], {}, SIZE)
            # One that ends by itself may have done so before anybody could look.
            until(lambda: "Max realtime timeout" in site.log.read_text(), "its limits are told")
            process.signal(signal.SIGKILL)
            await process.ended()

        asyncio.run(run())
        lines = site.log.read_text().splitlines()
        rows = {line[:26].strip(): line[26:].split()[:2] for line in lines}
        host.forget(site)
    assert rows["Max processes"] == ["8192", "8192"]
    assert rows["Max realtime priority"] == ["0", "0"]


@pytest.mark.skipif(os.geteuid() != 0, reason="another user is had by root only")
def test_a_user_makes_sandboxes_that_make_no_further_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a cell of another user than root says to bubblewrap, said by another user."""
    program = "import ctypes; print(ctypes.CDLL(None).unshare(0x10000000))"
    python = "/usr/bin/python3"
    drop = ["setpriv", "--reuid=299142", "--regid=299142", "--clear-groups", "--"]
    tried = [*drop, "bwrap", "--unshare-user", "--disable-userns", "--ro-bind", "/", "/", "true"]
    if not Path(python).exists() or subprocess.run(tried, check=False).returncode != 0:
        pytest.skip("other users make no sandboxes here, or there is no Python for them")
    with monkeypatch.context() as other:
        other.setattr(os, "geteuid", lambda: 299142)
        other.setattr("cell.runtime.confinement._interpreter", list)
        other.setattr(sys, "executable", python)
        sandbox = Sandbox()
    # Without the filter, so that it is the sandbox which refuses.
    words = sandbox.command(299142, [], [python, "-I", "-S", "-c", program], 2)
    assert "--disable-userns" in words
    done = subprocess.run([*drop, *words], capture_output=True, text=True, check=True, cwd="/")
    assert done.stdout.strip() == "-1"
