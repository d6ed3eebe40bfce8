"""Which tests reach which function, how long each takes, and which fail without any mutant."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Reach:
    """Functions are called as mutmut does, without the number of a mutant; tests as pytest does."""

    tests_of: dict[str, list[str]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    """What is told of tests that fail."""

    def add(self, test: str, seconds: float, functions: Sequence[str], failures: str) -> None:
        self.seconds[test] = seconds
        for function in functions:
            self.tests_of.setdefault(function, []).append(test)
        if failures:
            self.failures.append(failures)

    def judges(self, mutant: str) -> list[str]:
        """The tests that reach what is changed, the fastest first."""
        reaching = self.tests_of.get(mutant.partition("__mutmut_")[0], [])
        return sorted(reaching, key=self.seconds.__getitem__)

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))


def read(path: Path) -> Reach:
    return Reach(**json.loads(path.read_text()))
