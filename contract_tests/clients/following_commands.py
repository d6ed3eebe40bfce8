"""Commands that go on until they are interrupted, as processes against the real control plane."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from contract_tests.api.harness import Tenant
from contract_tests.clients.test_control_plane import Served
from contract_tests.end_to_end.command_line import hear_interrupts

PYTHON_MODULE = ("-m", "menagerie")


@contextmanager
def started(
    served: Served,
    tenant: Tenant,
    folder: Path,
    *words: str,
    program: tuple[str, ...] = PYTHON_MODULE,
) -> Iterator[subprocess.Popen[str]]:
    """The command of these words, as the tenant; `program` is what Python runs."""
    surroundings = {
        "MENAGERIE_BASE_URL": served.base_url,
        "MENAGERIE_API_KEY": tenant.key,
        "MENAGERIE_ORG": tenant.org_id,
    }
    with subprocess.Popen(
        [sys.executable, *program, *words],
        env={**os.environ, **surroundings},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        preexec_fn=hear_interrupts,  # noqa: PLW1509 - one system call
    ) as process:
        try:
            yield process
        finally:
            process.kill()
