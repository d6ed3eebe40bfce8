"""The `menagerie` command as a process of its own, against an installation, and its client here."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from clients.client import Client
from clients.endpoint import Endpoint
from clients.sessions import Session
from contract_tests.end_to_end.installation import Installation, order
from contract_tests.end_to_end.test_engines import refuse_missing

DONE_S = 200


def hear_interrupts() -> None:
    # A shell that runs the tests in the background has them ignored.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class CommandLine:
    """The command as a process of its own, with a home of its own."""

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

    def start(self, *argv: str, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "menagerie", *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "MENAGERIE_HOME": str(self.installation.home),
                "XDG_CONFIG_HOME": str(self.config),
                "XDG_CACHE_HOME": str(self.installation.home / "cache"),
                **environment,
            },
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

    @contextlib.contextmanager
    def endpoint(self, name: str) -> Iterator[Endpoint]:
        """By the same client in this process: for what a test only needs done, or asks often."""
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
        done = self.run("query", *argv, "--output", "json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)
