"""Owns what benchmarks of the gateway have in common: ways to the same place, measured in turns."""

import socket
import statistics
import time
from dataclasses import dataclass, field

import psutil


@dataclass
class RequestPipeline:
    """One of those that are compared: whose CPU it takes, and what was measured in each round."""

    name: str
    processes: list[psutil.Process] = field(default_factory=list, kw_only=True)
    rounds: dict[str, list[float]] = field(default_factory=dict, kw_only=True)

    def cpu_s(self) -> float:
        """Of all threads, also those that have ended."""
        return sum(time.clock_gettime(_cpu_clock(each.pid)) for each in self.processes)

    def note(self, what: str, value: float) -> None:
        self.rounds.setdefault(what, []).append(value)

    def median(self, what: str) -> float:
        return statistics.median(self.rounds[what])


def _cpu_clock(pid: int) -> int:
    """Of a process, as clock_getcpuclockid(3) names it: /proc tells hundredths of a second."""
    return ~pid << 3 | 2


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])
