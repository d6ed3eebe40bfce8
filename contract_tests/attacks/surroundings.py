"""What must not be reached from an instance: a file, listeners on the host, and a neighbour."""

import contextlib
import json
import os
import re
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contract_tests.attacks.statements import places
from contract_tests.end_to_end.engine_clients import Place

ROOT = Path(__file__).parents[2]
CANARY = "canary-1b7e90"
NEIGHBOUR = "neighbour-5d20cc"
# What tells how a server is made: addresses in memory, and stacks of calls.
INNARDS = re.compile(r"0x[0-9a-f]{8,}|Traceback \(most|\.(?:cpp|cc|hpp|py):\d+|std::\w+")


@dataclass
class Around:
    """`visits` is whoever came to one of the listeners."""

    folder: Path
    home: Path
    port: int
    udp: int
    visits: list[str] = field(default_factory=list)

    def names(self, neighbour: str) -> dict[str, str]:
        data = self.home / "cell" / "instances" / neighbour / "data"
        return places(self.folder, self.home / "cell", data, port=self.port, udp=self.udp)

    def harm(self) -> list[str]:
        """What was done to it since it was asked last."""
        found = [f"{each} was visited" for each in self.visits]
        self.visits.clear()
        planted = {each.name for each in self.folder.iterdir()} - {"canary.csv", "listener"}
        found += [f"{name} was planted" for name in planted]
        if (self.folder / "canary.csv").read_text() != CANARY:
            found.append("the canary was written to")
        return found

    def leaks(self, steps: list[str], said: str) -> list[str]:
        """What an answer tells that its reader did not say and must not know."""
        asked = "\n".join(steps)
        found = [each for each in (CANARY, NEIGHBOUR) if each in said]
        found += [
            each for each in (str(self.home), str(ROOT)) if each in said and each not in asked
        ]
        return found

    def innards(self, steps: list[str], refused: str) -> list[str]:
        asked = "\n".join(steps)
        return [each for each in INNARDS.findall(refused) if each not in asked]


@contextmanager
def around(folder: Path, home: Path) -> Iterator[Around]:
    """A file for everybody to read and write, and listeners for everybody to reach."""
    (folder / "canary.csv").write_text(CANARY)
    (folder / "canary.csv").chmod(0o666)
    for path in (folder, *folder.parents[:-1]):
        # Nothing but the sandbox may be what keeps an engine out.
        path.chmod(path.stat().st_mode | 0o755)
    folder.chmod(0o777)
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_UNIX) as unix,
    ):
        udp.bind(("127.0.0.1", 0))
        unix.bind(str(folder / "listener"))
        unix.listen()
        (folder / "listener").chmod(0o777)
        made = Around(folder, home, tcp.getsockname()[1], udp.getsockname()[1])
        reading, writing = os.pipe()
        given = ({"tcp": tcp, "udp": udp, "unix": unix}, reading, made.visits)
        watching = threading.Thread(target=_watch, args=given)
        watching.start()
        try:
            yield made
        finally:
            os.close(writing)
            watching.join()
            os.close(reading)


def _watch(listeners: dict[str, socket.socket], ended: int, visits: list[str]) -> None:
    names = {listener.fileno(): name for name, listener in listeners.items()}
    while True:
        ready, _, _ = select.select([*names, ended], [], [])
        if ended in ready:
            return
        for each in ready:
            visits.append(names[each])
            if names[each] == "udp":
                listeners["udp"].recv(65536)
            else:
                listeners[names[each]].accept()[0].close()


@dataclass
class Attacker:
    """Attacks from a process of its own, which is killed where a statement takes too long."""

    engine: str
    place: Place
    process: subprocess.Popen[str] | None = None

    def attack(self, steps: list[str], within_s: float) -> dict[str, Any] | None:
        """What it was told, or None where it had to be ended."""
        if self.process is None:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "contract_tests.attacks.attacker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=ROOT,
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        given = {
            "engine": self.engine,
            "credential": self.place.credential,
            "ca_file": self.place.ca_file,
            "steps": steps,
        }
        self.process.stdin.write(json.dumps(given) + "\n")
        self.process.stdin.flush()
        if not select.select([self.process.stdout], [], [], within_s)[0]:
            self.end()
            return None
        return dict(json.loads(self.process.stdout.readline()))

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            for pipe in (self.process.stdin, self.process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
            self.process.wait()
            self.process = None
