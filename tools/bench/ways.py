"""Owns what benchmarks of the gateway have in common: ways to the same place, measured in turns."""

import socket
import statistics
from dataclasses import dataclass, field

import psutil


@dataclass
class RequestPipeline:
    """One of those that are compared: whose CPU it takes, and what was measured in each round."""

    name: str
    processes: list[psutil.Process] = field(default_factory=list, kw_only=True)
    rounds: dict[str, list[float]] = field(default_factory=dict, kw_only=True)

    def cpu_s(self) -> float:
        times = [process.cpu_times() for process in self.processes]
        return float(sum(each.user + each.system for each in times))

    def note(self, what: str, value: float) -> None:
        self.rounds.setdefault(what, []).append(value)

    def median(self, what: str) -> float:
        return statistics.median(self.rounds[what])


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])
