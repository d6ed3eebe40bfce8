"""What lies around an instance and must not be reached from inside it, and who tries to."""

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cell.agent import cell_name
from cell.engines import PACKAGES
from cell.layout import Layout, Site
from cell.runtime.host import Host
from contract_tests.attacks.statements import fill, places
from contract_tests.cell.rig import Rig

CANARY = "canary-8c1f42"
# Run in an engine's place. It says GOT only of what it could do; `own` shows that it ran.
PROBE = """
import os, socket, sys
home, canary, cell, neighbour, neighbour_socket, port, own, pid = sys.argv[1:]
def attempt(name, act):
    try:
        print("GOT", name, act(), flush=True)
    except BaseException as error:
        print("no", name, type(error).__name__, flush=True)
def connect(family, address):
    with socket.socket(family) as s:
        s.settimeout(2)
        return s.connect(address)
attempt("own", lambda: open(own + "/mine", "w").write("x"))
attempt("canary", lambda: open(canary).read())
attempt("planted", lambda: open(canary + ".planted", "w").write("x"))
attempt("home", lambda: os.listdir(home))
attempt("seal", lambda: open(home + "/seal.key", "rb").read())
attempt("neighbour's data", lambda: os.listdir(neighbour))
attempt("passwd", lambda: [l for l in open("/etc/passwd") if l.startswith("root:")][0])
attempt("system", lambda: open("/usr/lib/planted", "w").write("x"))
attempt("cell's socket", lambda: connect(socket.AF_UNIX, cell))
attempt("neighbour's socket", lambda: connect(socket.AF_UNIX, neighbour_socket))
attempt("loopback", lambda: connect(socket.AF_INET, ("127.0.0.1", int(port))))
attempt("loopback 6", lambda: connect(socket.AF_INET6, ("::1", int(port))))
attempt("metadata", lambda: connect(socket.AF_INET, ("169.254.169.254", 80)))
attempt("metadata 6", lambda: connect(socket.AF_INET6, ("fd00:ec2::254", 80)))
attempt("kill", lambda: os.kill(int(pid), 0))
attempt("root", lambda: os.setuid(0))
attempt("mount", lambda: os.chroot("/"))
"""


@dataclass
class Surroundings:
    """`visits` are connections that the listener on loopback got."""

    rig: Rig
    folder: Path
    neighbour: str
    port: int
    visits: list[str] = field(default_factory=list)

    @property
    def canary(self) -> Path:
        return self.folder / "canary.csv"

    @property
    def cell_socket(self) -> str:
        return str(Layout.make(self.rig.home).socket)

    def socket(self, instance_id: str) -> Path:
        route = self.rig.route(instance_id)
        assert route is not None
        return Path(route["socket"])

    def secret(self, instance_id: str, purpose: str) -> str:
        """What only the cell can know: the password of an instance's administrator."""
        return self.host.secret(self.site(instance_id), purpose)

    def site(self, instance_id: str) -> Site:
        return Layout.make(self.rig.home).site(instance_id, 0)

    @property
    def host(self) -> Host:
        """With the cell's own key."""
        layout = Layout.make(self.rig.home)
        key = layout.seal_key.read_bytes()
        return Host(str(layout.home), cell_name(layout), PACKAGES, confine=False, key=key)

    def words(self, own: str = "/instance/data") -> list[str]:
        """What the probe is told."""
        data = self.rig.home / "instances" / self.neighbour / "data"
        return [
            *(str(self.rig.home), str(self.canary), self.cell_socket, str(data)),
            *(str(self.socket(self.neighbour)), str(self.port), own, str(os.getpid())),
        ]

    def place(self, statement: str) -> str:
        """A statement that names these surroundings."""
        neighbour = self.rig.home / "instances" / self.neighbour / "data"
        return fill(statement, places(self.folder, self.rig.home, neighbour, port=self.port))

    def check(self) -> None:
        """Nothing came out, nothing came in."""
        assert self.visits == []
        assert sorted(path.name for path in self.folder.iterdir()) == ["canary.csv"]
        assert self.canary.read_text() == CANARY
        assert self.rig.get("/v1/cell").status_code == 200
        assert self.rig.observe(self.neighbour)["status"] == "running"


@contextmanager
def listening(visits: list[str]) -> Iterator[int]:
    """The port of a listener on loopback that notes who comes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    visitor, address = listener.accept()
                except OSError:
                    return
                visits.append(str(address))
                visitor.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            # A thread that waits for visitors is woken by no close.
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


Groups = frozenset[tuple[str, str]]


def alive(uid: int, instance_id: str) -> Iterator[tuple[Path, Groups]]:
    """The processes of an instance's uid under /proc, and where each is held.

    On version 1 a process is held by each controller, on version 2 once, by none.
    """
    for path in Path("/proc").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if path.name.isdigit() and path.stat().st_uid == uid:
                group = _groups(path, instance_id)
                # A process that ends, as one that saves may at any moment, leaves its groups
                # before it is gone.
                if (path / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX":
                    yield path, group


def _groups(path: Path, instance_id: str) -> Groups:
    lines = [line.split(":", 2) for line in (path / "cgroup").read_text().splitlines()]
    return frozenset(
        (controller, group.strip("/"))
        for _, names, group in lines
        for controller in names.split(",")
        if group.endswith(f"/{instance_id}") and controller in {"", "cpu", "memory", "pids"}
    )
