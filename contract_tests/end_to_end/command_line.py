"""The `menagerie` command against an installation: as a process of its own, and in the test's."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from clients.cli import run
from clients.client import Client
from clients.endpoint import Endpoint
from clients.sessions import Session
from clients.source import SHIPPED
from contract_tests.end_to_end.installation import Installation, order
from contract_tests.end_to_end.test_engines import refuse_missing
from menagerie import contract

DONE_S = 200


def hear_interrupts() -> None:
    # A shell that runs the tests in the background has them ignored.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class CommandLine:
    """The command, with a home of its own.

    A process takes half a second of CPU before it does anything: it is for what has programs,
    signals or a terminal to do with, and for one example of the rest.
    """

    def __init__(self, installation: Installation) -> None:
        self.installation = installation
        self.config = installation.home / "xdg"
        self._ordered: dict[str, str] = {}

    def instance(self, engine: str) -> str:
        """The name of an instance that all tests share."""
        refuse_missing(self.installation, engine)
        if engine not in self._ordered:
            self._ordered[engine] = order(self.installation, engine=engine)["name"]
        return self._ordered[engine]

    @property
    def surroundings(self) -> dict[str, str]:
        return {
            "MENAGERIE_HOME": str(self.installation.home),
            "XDG_CONFIG_HOME": str(self.config),
            "XDG_CACHE_HOME": str(self.installation.home / "cache"),
        }

    def start(self, *argv: str, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "menagerie", *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **self.surroundings, **environment},
            preexec_fn=hear_interrupts,  # noqa: PLW1509  no threads here
        )

    def run(
        self, *argv: str, typed: str = "", **environment: str
    ) -> subprocess.CompletedProcess[str]:
        process = self.start(*argv, **environment)
        try:
            out, err = process.communicate(typed, timeout=DONE_S)
        finally:
            process.kill()
        return subprocess.CompletedProcess(argv, process.returncode, out, err)

    def here(self, *argv: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """In this process; of the server's commands there are none."""
        SHIPPED.set(contract.shipped())
        # As a pipe that is read as text has it: each line ends in one way.
        out, err = io.StringIO(newline=None), io.StringIO(newline=None)
        with (
            pytest.MonkeyPatch.context() as patch,
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            for name, value in (self.surroundings | environment).items():
                patch.setenv(name, value)
            status = run(list(argv))
        return subprocess.CompletedProcess(argv, status, out.getvalue(), err.getvalue())

    @contextlib.contextmanager
    def endpoint(self, name: str) -> Iterator[Endpoint]:
        """By the same client: for what a test only needs done, or asks often."""
        found = self.installation.endpoints
        with Client(
            found["base_url"],
            api_key=found["api_key"],
            ca_file=found["ca_file"],
            org_id=found["org_id"],
        ) as client:
            instance = next(one for one in client.paginate("instances.list") if one["name"] == name)
            yield Endpoint(client, instance)

    @contextlib.contextmanager
    def session(self, name: str) -> Iterator[Session]:
        with self.endpoint(name) as endpoint, endpoint.session() as session:
            yield session

    def rows(self, *argv: str) -> Any:
        done = self.here("query", *argv, "--output", "json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)
