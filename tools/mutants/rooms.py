"""Which code is mutated, and which tests judge it: fast ones within one process, on SQLite."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True)
class Room:
    """`folder` is mutated but for `left_out`, and lines that match `unmutated` (as expressions).

    `tests` judge, but for `no_judges`.

    What starts a server or a process, or kills one, is no judge: it takes seconds for each mutant.
    """

    folder: str
    tests: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    no_judges: tuple[str, ...] = ()
    unmutated: tuple[str, ...] = ()

    def files(self, root: Path) -> list[Path]:
        """What is mutated, relative to the root."""
        found = (path.relative_to(root) for path in (root / self.folder).rglob("*.py"))
        return sorted(path for path in found if not any(map(path.match, self.left_out)))


ROOMS: Final[Mapping[str, Room]] = MappingProxyType(
    {
        "policy": Room("control/policy", ("contract_tests/policy",)),
        "boundary": Room(
            "control/boundary",
            (
                "contract_tests/boundary",
                "contract_tests/api/access",
                "contract_tests/api/events",
                "contract_tests/api/data",
                "contract_tests/api/instances/test_console.py",
                "contract_tests/api/test_replayed_secrets.py",
            ),
            # Of a Redis.
            left_out=("redis_windows.py",),
            no_judges=(
                "contract_tests/boundary/test_killed_process.py",
                "contract_tests/boundary/test_redis_rates.py",
                "contract_tests/boundary/test_replay.py::test_killed_at_the_commit",
            ),
        ),
        "storage": Room(
            "storage",
            (
                "contract_tests/storage",
                "contract_tests/workflows/instances",
                *(
                    f"contract_tests/api/{area}"
                    for area in ("access", "catalogue", "data", "events", "instances", "network")
                ),
            ),
            # Tested by each upgrade and downgrade, in whole.
            left_out=("migrations/*.py", "versions/*.py"),
            # SQLAlchemy looks at the parameters of such a function, and mutmut hides them.
            unmutated=(r"return everyone_of\(context",),
            no_judges=(
                "contract_tests/storage/test_outages.py",
                "contract_tests/workflows/instances/test_slow_engines.py",
                # After others of its folder on the same database, its session has expired.
                "contract_tests/api/instances/test_console.py",
            ),
        ),
    }
)
