"""What confines engines: a hostile program in an engine's place, held by what is in force here."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from ulid import ULID

from cell.layout import Layout, Site
from cell.runtime import cgroups
from cell.runtime.engine_files import copy_file
from cell.runtime.host import PIDS_MAX, Host
from cell.runtime.process import MARK, Process
from cell.specification import Size
from contract_tests import kernel, skips
from contract_tests.cell.rig import Rig

SIZE = Size("f0", 0.25, 256 * 2**20, 10**9, 20)
ENDED_S = 60
ROOT = Path(__file__).parents[3]
HOSTILE = """
import json, os, signal, socket, sys
home, neighbour, data, port, cell_pid = sys.argv[1:]
def attempt(act):
    try:
        return [True, str(act())]
    except BaseException as error:
        return [False, repr(error)]
def connect(family, address):
    with socket.socket(family) as s:
        s.settimeout(2)
        return s.connect(address)
found = {
    "uid": os.getuid(), "gid": os.getgid(), "groups": os.getgroups(),
    "capabilities": [l.split()[1] for l in open("/proc/self/status") if l.startswith("Cap")],
    "no_new_privs": [l.split()[1] for l in open("/proc/self/status") if l.startswith("NoNew")],
    "own": attempt(lambda: open(data + "/mine", "w").write("x")),
    "seal": attempt(lambda: open(home + "/seal.key", "rb").read()),
    "neighbour": attempt(lambda: os.listdir(neighbour)),
    "passwd": attempt(lambda: open("/etc/passwd").read()),
    "home": attempt(lambda: os.listdir("/root")),
    "outside": attempt(lambda: open("/usr/lib/planted", "w")),
    "loopback": attempt(lambda: connect(socket.AF_INET, ("127.0.0.1", int(port)))),
    "metadata": attempt(lambda: connect(socket.AF_INET, ("169.254.169.254", 80))),
    "cell": attempt(lambda: connect(socket.AF_UNIX, home + "/run/cell.sock")),
    "kill": attempt(lambda: os.kill(int(cell_pid), 0)),
    "setuid": attempt(lambda: os.setuid(0)),
    "interfaces": [l.split(":")[0].strip() for l in open("/proc/net/dev") if ":" in l],
    "processes": len([p for p in os.listdir("/proc") if p.isdigit()]),
}
print(json.dumps(found), flush=True)
"""


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    made = Layout.make(tmp_path_factory.mktemp("confined") / "cell")
    made.seal_key.write_bytes(b"0" * 32)
    made.seal_key.chmod(0o600)
    return made


@pytest.fixture(scope="module")
def host(layout: Layout) -> Iterator[Host]:
    made = Host(str(layout.home), f"test-confined-{os.getpid()}", ("specserver",))
    yield made
    for pid in made.strays():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    made.close()
    if layout.sockets.parent != layout.home:
        shutil.rmtree(layout.sockets)


def new_site(host: Host, layout: Layout, uid: int) -> Site:
    site = layout.site(f"inst_{ULID()}", uid)
    site.make(host.owner(site))
    return site


def needs(host: Host, *names: str) -> None:
    for name in names:
        if not host.confinement[name].enforced:
            pytest.skip(f"{name} is not enforced: {host.confinement[name].reason}")


@pytest.mark.skipif(not skips.are_held(), reason="this machine need not confine engines")
@pytest.mark.parametrize("means", kernel.MEANS)
def test_what_the_kernel_can_is_enforced(host: Host, means: str) -> None:
    """The kernel is asked, as the host's own word would excuse its own failure."""
    if not kernel.can_hold(means):
        pytest.skip(f"this kernel cannot hold {means}")
    assert host.confinement[means].enforced, host.confinement[means].reason


async def run(host: Host, site: Site, program: str, *words: str, vcpu: float | None = None) -> str:
    """What the program printed, after it ended or was ended; `go` tells it that its CPU is held."""
    argv = [sys.executable, "-I", "-S", "-c", program, *words]
    process = await host.start(site, argv, {}, SIZE)
    if vcpu is not None:
        host.limit_cpu(process, vcpu)
        (site.data.outside / "go").touch()
    try:
        async with asyncio.timeout(ENDED_S):
            await process.ended()
    finally:
        process.signal(signal.SIGKILL)
    return site.log.read_text()


@pytest.fixture(scope="module")
def seen(host: Host, layout: Layout) -> dict[str, Any]:
    """What a hostile program found out and could do, next to a listener it must not reach."""
    site, neighbour = new_site(host, layout, 299_101), new_site(host, layout, 299_102)
    (neighbour.data.outside / "secret").write_text("x")
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
        words = [str(layout.home), str(neighbour.data), str(host.view(site).data), str(port)]
        said = asyncio.run(run(host, site, HOSTILE, *words, str(os.getpid())))
    host.forget(site)
    return {**json.loads(said.splitlines()[-1]), "site": site}


def test_an_engine_has_its_own_uid_and_no_rights(host: Host, seen: dict[str, Any]) -> None:
    needs(host, "uid")
    assert (seen["uid"], seen["gid"], seen["groups"]) == (299_101, 299_101, [])
    assert {int(each, 16) for each in seen["capabilities"]} == {0}
    assert seen["no_new_privs"] == ["1"]
    assert not seen["setuid"][0]
    assert not seen["kill"][0]


def test_an_engine_sees_its_own_files_and_no_others(host: Host, seen: dict[str, Any]) -> None:
    assert seen["own"][0], seen["own"]
    assert (seen["site"].data.outside / "mine").read_text() == "x"
    needs(host, "filesystem")
    for name in ("seal", "neighbour", "passwd", "outside", "cell"):
        assert not seen[name][0], (name, seen[name])
    # Where the interpreter lies below root's home, that one folder shows and nothing beside it.
    assert "secret" not in seen["home"][1]
    assert seen["processes"] == 1


def test_an_engine_reaches_no_network(host: Host, seen: dict[str, Any]) -> None:
    needs(host, "network")
    assert not seen["loopback"][0]
    assert not seen["metadata"][0]
    if host.confinement["filesystem"].enforced:
        # Else it may be the filter of system calls alone that keeps the network away.
        assert seen["interfaces"] == ["lo"]


def test_an_engine_that_takes_more_memory_than_its_size_is_ended(
    host: Host, layout: Layout
) -> None:
    needs(host, "memory")
    site = new_site(host, layout, 299_103)
    program = "print('began', flush=True); x = bytearray(400 * 2**20); print('had it', flush=True)"
    said = asyncio.run(run(host, site, program))
    assert "began" in said
    assert "had it" not in said
    assert host.memory_kills(site) > 0
    host.forget(site)


def test_an_engine_starts_only_so_many_processes(host: Host, layout: Layout) -> None:
    needs(host, "pids")
    site = new_site(host, layout, 299_104)
    program = (
        "import os, time\n"
        "made = 0\n"
        "try:\n"
        "    for made in range(2000):\n"
        "        if os.fork() == 0: time.sleep(60); os._exit(0)\n"
        "except OSError: pass\n"
        "print('made', made, flush=True)\n"
        "os._exit(0)\n"
    )
    said = asyncio.run(run(host, site, program))
    assert 0 < int(said.split()[-1]) < PIDS_MAX
    for pid in host.strays(site):
        # The kernel ends them too, once the first of them has ended.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    host.forget(site)


def test_an_engine_gets_the_cpu_of_its_size(host: Host, layout: Layout) -> None:
    needs(host, "cpu")
    site = new_site(host, layout, 299_105)
    # By its own clocks: a loaded machine only lowers the share.
    program = (
        "import os, sys, time\n"
        "while not os.path.exists(sys.argv[1]): time.sleep(0.01)\n"
        "began, used = time.monotonic(), time.process_time()\n"
        "while time.monotonic() - began < 1: pass\n"
        "print((time.process_time() - used) / (time.monotonic() - began), flush=True)\n"
    )
    go = str(host.view(site).data / "go")
    said = asyncio.run(run(host, site, program, go, vcpu=0.25))
    assert float(said.split()[-1]) < 0.4
    host.forget(site)


def test_open_files_are_limited_and_no_core_is_written(host: Host, layout: Layout) -> None:
    site = new_site(host, layout, 299_106)
    program = "import time\nprint(open('/proc/self/limits').read(), flush=True)\ntime.sleep(60)"

    async def limits() -> str:
        process: Process = await host.start(
            site, [sys.executable, "-I", "-S", "-c", program], {}, SIZE
        )
        try:
            return await asyncio.to_thread(Path(f"/proc/{process.pid}/limits").read_text)
        finally:
            process.signal(signal.SIGKILL)
            await process.ended()

    rows = {line[:26].strip(): line[26:].split()[:2] for line in asyncio.run(limits()).splitlines()}
    assert rows["Max core file size"] == ["0", "0"]
    assert rows["Max open files"] == ["20000", "20000"]
    host.forget(site)


@pytest.mark.nightly
def test_without_any_means_an_engine_still_runs_and_that_is_said(make_rig: Any) -> None:
    rig: Rig = make_rig(confine=False)
    told = rig.get("/v1/cell").json()["confinement"]
    # But for the uid: no engine runs as root.
    lacking = told.keys() - ({"uid"} if os.geteuid() == 0 else set())
    assert {name for name, means in told.items() if not means["enforced"]} == lacking
    assert all(told[name]["reason"] for name in lacking)
    warnings = [line for line in rig.log_path.read_text().splitlines() if "not_enforced" in line]
    assert {json.loads(line)["means"] for line in warnings} == lacking
    assert all(json.loads(line)["lost"] for line in warnings)
    password = rig.reveal(instance_id := rig.make())["password"]
    assert rig.query(instance_id, password, "SELECT 1").status_code == 200
    assert psutil.Process(rig.engine_pid(instance_id)).uids().real != 0


@pytest.mark.nightly
def test_without_bubblewrap_an_engine_still_runs(
    make_rig: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sh", "true", "setpriv", "unshare"):
        if (found := shutil.which(name)) is not None:
            (tools / name).symlink_to(found)
    monkeypatch.setenv("PATH", str(tools))
    rig: Rig = make_rig()
    assert not rig.get("/v1/cell").json()["confinement"]["filesystem"]["enforced"]
    instance_id = rig.make()
    password = rig.reveal(instance_id)["password"]
    assert rig.query(instance_id, password, "CREATE TABLE t AS SELECT 1").status_code == 200


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_files_follow_the_user_that_the_engine_runs_as(tmp_path: Path) -> None:
    site = Layout.make(tmp_path / "cell").site(f"inst_{ULID()}", 299_120)
    for owner, expected in ((None, 0), (299_120, 299_120), (None, 0)):
        site.make(owner)
        (site.data.outside / "file").touch()
        site.make(owner)
        # An engine without its own uid has no right to pass by modes either.
        assert site.data.outside.stat().st_uid == site.run.outside.stat().st_uid == expected
    assert (site.data.outside / "file").stat().st_uid == 0


def test_uids_that_cannot_be_had_are_not_asked_for() -> None:
    program = (
        "from cell.runtime.confinement import Sandbox\n"
        "sandbox = Sandbox()\n"
        "assert not sandbox.means['uid'].enforced\n"
        "assert not [w for w in sandbox.command(299121, [], ['true'], 2) if '--reuid' in w]\n"
    )
    # As in a container of a user's own: root, and the only user there is.
    alone = [shutil.which("unshare") or "", "--user", "--map-root-user"]
    if not alone[0] or subprocess.run([*alone, "true"], check=False).returncode != 0:
        pytest.skip("this machine makes no user namespaces")
    subprocess.run([*alone, sys.executable, "-c", program], check=True, cwd=ROOT)


def test_a_pipe_in_the_place_of_a_database_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/etc/passwd")
    for name in ("pipe", "link"):
        with pytest.raises(OSError, match=name):
            copy_file(tmp_path / name, tmp_path / "copy")


def test_groups_of_version_two_are_nested_and_limited(tmp_path: Path) -> None:
    """On a tree of plain files: what is written where, by a machine that has none of version 2."""
    own = tmp_path / "service"
    own.mkdir()
    (tmp_path / "cgroup.controllers").write_text("cpu cpuset memory pids")
    for directory in (own, own / "cell-x"):
        directory.mkdir(exist_ok=True)
        (directory / "cgroup.controllers").write_text("cpu cpuset memory pids io")
        (directory / "cgroup.subtree_control").write_text("cpu cpuset memory pids")
        (directory / "cgroup.procs").write_text("")
    told = tmp_path / "self"
    told.write_text("0::/service\n")
    groups = cgroups.find("x", tmp_path, told)
    assert all(means.enforced for means in groups.means.values())
    entered = groups.make("inst_a", 2**30, 100)
    assert entered == [own / "cell-x" / "inst_a" / "cgroup.procs"]
    groups.set_cpu("inst_a", 0.25)
    group = entered[0].parent
    assert (group / "memory.oom.group").read_text() == "1"
    (console,) = cgroups.for_console(groups)
    assert (console.parent / "memory.max").read_text() == str(2**30)
    assert (console.parent / "memory.oom.group").read_text() == "0"
    groups.set_cpus("inst_a", frozenset({5, 2}))
    assert (group / "cpuset.cpus").read_text() == "2,5\n"
    groups.set_cpus("inst_a", None)
    assert (group / "cpuset.cpus").read_text() == "\n"
    assert (group / "memory.max").read_text() == str(2**30)
    assert (group / "pids.max").read_text() == "100"
    assert (group / "cpu.max").read_text() == "25000 100000"
    assert (group / "cpu.weight").read_text() == "25"
    assert int((group.parent / "cpu.weight").read_text()) == 100 * (os.cpu_count() or 1)
    (group / "memory.current").write_text("5000")
    (group / "memory.stat").write_text("anon 1\ninactive_file 1000\n")
    (group / "cpu.stat").write_text("usage_usec 2500000\n")
    (group / "memory.events").write_text("oom 1\noom_kill 2\n")
    assert groups.memory_bytes("inst_a") == 4000
    assert groups.cpu_s("inst_a") == 2.5
    assert groups.memory_kills("inst_a") == 2
    groups.set_cpu("inst_a", None)
    assert (group / "cpu.max").read_text() == "max 100000"


def test_a_group_that_others_live_in_is_not_divided(tmp_path: Path) -> None:
    own = tmp_path / "session"
    own.mkdir()
    (tmp_path / "cgroup.controllers").write_text("cpu")
    (own / "cgroup.controllers").write_text("cpu memory pids")
    (own / "cgroup.subtree_control").write_text("")
    told = tmp_path / "self"
    told.write_text("0::/session\n")
    # Process 1 will not do: where the tests are what a container runs, it is of their session.
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, start_new_session=True) as other:
        (own / "cgroup.procs").write_text(f"{other.pid}\n")
        groups = cgroups.find("x", tmp_path, told)
        other.kill()
    assert not any(means.enforced for means in groups.means.values())
    assert "cannot be divided: it contains processes of others" in str(groups.means["cpu"].reason)


def test_the_end_of_any_process_is_noticed() -> None:
    """Also of one that is not a child of the cell, as after an adoption."""
    reading, writing = os.pipe()
    if (pid := os.fork()) == 0:
        if (inner := os.fork()) > 0:
            os.write(writing, str(inner).encode())
            os._exit(0)
        os.close(writing)
        signal.pause()
    os.waitpid(pid, 0)
    grandchild = int(os.read(reading, 20))
    fields = Path(f"/proc/{grandchild}/stat").read_text().rpartition(")")[2].split()
    process = Process(grandchild, int(fields[19]), 0.0, "none")
    assert process.alive

    async def watch() -> None:
        killer = threading.Timer(0.05, os.kill, (grandchild, signal.SIGKILL))
        killer.start()
        async with asyncio.timeout(ENDED_S):
            await process.ended()

    asyncio.run(watch())
    assert not process.alive
    for descriptor in (reading, writing):
        os.close(descriptor)


def test_an_engine_that_an_earlier_version_marked_is_found(host: Host, layout: Layout) -> None:
    """It wrote the path of the cell's home into the engine's environment."""
    site = new_site(host, layout, 299_150)
    words = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"]
    mark = {MARK: f"{layout.home}/{site.instance_id}"}
    with subprocess.Popen(words, env=mark) as engine:
        try:
            assert engine.pid in host.strays()
            assert host.strays(site) == [engine.pid]
        finally:
            engine.kill()
