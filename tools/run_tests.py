"""Run every test: first in parallel, then those that want the machine to themselves.

usage: python -m tools.run_tests [--nightly] [pytest options…]
"""

import os
import subprocess
import sys

_NOTHING_COLLECTED = 5


def main(arguments: list[str]) -> int:
    """The worse of the two parts' exit codes; a part without tests is no failure."""
    nightly = "--nightly" in arguments
    rest = [argument for argument in arguments if argument != "--nightly"]
    chosen = "" if nightly else " and not nightly"
    # Engines and servers are waited for: two of these keep hardly more than one CPU busy.
    count = (os.cpu_count() or 1) * 3 // 2
    workers = ["-n", str(count), "--dist", "worksteal"]
    # `make check` has held the habits already.
    rest += ["--ignore=contract_tests/habits"]
    parts = [(f"not exclusive{chosen}", workers), (f"exclusive{chosen}", ["-n0"])]
    worst = 0
    for marks, options in parts:
        command = [sys.executable, "-m", "pytest", "-q", "-m", marks, *options, *rest]
        code = subprocess.run(command, check=False).returncode
        worst = max(worst, 0 if code == _NOTHING_COLLECTED else code)
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
