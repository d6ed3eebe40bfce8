"""Files of tests that share an installation are one worker's by day, and not spread over all.

Each worker would start an installation of its own, which takes five seconds of a CPU.
"""

from typing import Any, Final

import pytest
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

FOLDER: Final = "contract_tests/end_to_end/"
SHARING: Final = frozenset(
    f"{FOLDER}test_{each}.py"
    for each in (
        *("command_line", "console_network", "dump", "faults", "lifecycle", "malformed_http"),
        *("pasted_lines", "search"),
    )
)


@pytest.hookimpl(optionalhook=True)  # mutants are tried by one process, without xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    by_day = "not nightly" in config.option.markexpr
    return Together(config, log) if by_day and config.getvalue("dist") == "loadfile" else None


class Together(LoadFileScheduling):  # type: ignore[misc]
    """What has one name is for one worker."""

    def _split_scope(self, nodeid: str) -> str:
        file = str(super()._split_scope(nodeid))
        return "installation" if file in SHARING else file


def complaint(request: pytest.FixtureRequest) -> str | None:
    """Why a file may not share the installation by day; None where it may."""
    file = str(request.node.nodeid)
    if file in SHARING or "not nightly" not in request.config.option.markexpr:
        return None
    return f"{file} is to be in SHARING of contract_tests/together.py, or its tests nightly"
