"""What may be skipped where the machine has, or can have, all that the tests need.

That is so under CI=true, and in `make test` and `make test-nightly` as root with apt. Any other
skip fails there: what the product says of itself excuses nothing, as a driver that finds no engine
would pass everything.
"""

import os
import re
from collections.abc import Generator
from typing import Any, Final

import pytest

from contract_tests import kernel

# Set by tools/run_tests.
LISTED_ONLY: Final = "LISTED_SKIPS_ONLY"
LISTED: Final = {
    r"no driver found (mysql|timescaledb)\b": "neither Debian nor a wheel has them",
    r"no mysqld of version|no extension timescaledb": "as above",
    r"(no driver found postgres|no PostgreSQL) 15\b": "some releases of Debian have it",
    r"valkey-cli is not installed": "Debian 12 has none, and the wheel has the server alone",
    r"only (duckdb|mariadb|meilisearch|redis|valkey) \S+ runs here": "one version of it can be had",
    r"the source of this version has no pgvector": "the wheels of the others have it",
    r"on PostgreSQL each statement sees|SQLite's own settings": "of one kind of database",
    r"nothing about it can be wrong": "an operation without anything to get wrong",
    # The tests have tried these themselves, with the system's own programs.
    r"no mount namespaces here|makes no (user|mount) namespaces": "tried by unshare",
    r"a small (disk|file system) cannot be mounted|no file system can be mounted": "tried by mount",
    r"other users make no sandboxes here": "tried by bubblewrap",
    r"prlimit cannot be used here|no IPv6 loopback|this machine has one CPU": "of the machine",
    r"only ext4 places folders|does not run Debian": "of the file system, of the distribution",
}
# Told by the product, and believed where the kernel itself cannot do it. By what is told:
KERNEL: Final = {
    r"(\w+) is not (?:enforced|limited)": (),
    r"this kernel cannot hold (\w+)": (),
    r"nothing holds a neighbour here": ("cpu", "memory", "uid"),
    r"engines have no uid of their own here": ("uid",),
}
_HELP: Final = (
    "may not be skipped here: run `tools/system-packages nightly` as root, which installs what the"
    " tests need, or add the reason to contract_tests/skips.py if no such machine can have it"
)


def are_held() -> bool:
    return os.environ.get("CI") == "true" or LISTED_ONLY in os.environ


def complaint(reason: str) -> str | None:
    """Why a test may not be skipped for this reason; None where it may."""
    reason = reason.removeprefix("Skipped: ")
    if any(re.search(each, reason) for each in LISTED):
        return None
    for pattern, means in KERNEL.items():
        if found := re.search(pattern, reason):
            wanted = means or found.groups()
            if any(not kernel.can_hold(each) for each in wanted):
                return None
            return f"{reason}: this kernel can hold {' and '.join(wanted)}, so it {_HELP}"
    return f"{reason}: {_HELP}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    report = yield
    if report.skipped and are_held() and not hasattr(report, "wasxfail"):
        told = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if why := complaint(told):
            report.outcome, report.longrepr = "failed", why
    return report
