"""Pebble, the ACME server of Let's Encrypt for tests, with somebody in between who can spoil it."""

import contextlib
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from contract_tests.cell.certificates.between import Between
from contract_tests.gateway.authorities import SERVER, Authority
from contract_tests.kept_port import KeptPort

BINARY = shutil.which("pebble")
START_S = 60.0


def needed() -> str:
    if BINARY is None:
        pytest.skip("no ACME server on this machine (Debian: pebble)")
    return BINARY


class Pebble:
    """Made, it has an address at which nobody answers; `start` once the gateway's port is known.

    Pebble checks nonces (and refuses some good ones), signatures and states, and validates
    TLS-ALPN-01 in earnest: it asks the name server, and knocks at `tls_port`.
    """

    def __init__(self, directory: Path, *, names: str) -> None:
        self._directory = directory
        self._names = names
        authority = Authority("acme", directory)
        self._pair = authority.issue("localhost", SERVER)
        self.ca_file = directory / "acme-tls.pem"
        self.ca_file.write_text(authority.pem)
        self._process: subprocess.Popen[bytes] | None = None
        self._kept = [KeptPort(), KeptPort()]
        self._port, self._management = (each.number for each in self._kept)
        self.between = Between(self._pair, self.ca_file, self._port)
        self._settings: dict[str, Any] = {}

    @property
    def directory_url(self) -> str:
        return f"https://localhost:{self.between.port}/dir"

    def start(self, *, tls_port: int, lifetime_s: int = 90 * 86_400, **settings: Any) -> None:
        self._settings = {
            "tlsPort": tls_port,
            "certificateValidityPeriod": lifetime_s,
            **settings,
        }
        self._run()
        self.between.start()

    def restart(self) -> None:
        """It forgets accounts and orders, and has another root."""
        self._end()
        self._run()

    @property
    def root_pem(self) -> str:
        return self._manage("/roots/0").text

    def close(self) -> None:
        self.between.close()
        self._end()
        for each in self._kept:
            each.close()

    def _run(self) -> None:
        configuration = {
            "listenAddress": f"127.0.0.1:{self._port}",
            "managementListenAddress": f"127.0.0.1:{self._management}",
            "certificate": str(self._pair.certificate),
            "privateKey": str(self._pair.key),
            "httpPort": 9,
            **self._settings,
        }
        file = self._directory / "pebble.json"
        file.write_text(json.dumps({"pebble": configuration}))
        environment = {
            **os.environ,
            "PEBBLE_VA_NOSLEEP": "1",
            "PEBBLE_WFE_NONCEREJECT": "20",
            "PEBBLE_AUTHZREUSE": "0",
        }
        with (self._directory / "pebble.log").open("ab") as log:
            self._process = subprocess.Popen(
                [needed(), "-strict", "-config", str(file), "-dnsserver", self._names],
                env=environment,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + START_S
        while not self._answers():
            assert time.monotonic() < deadline, self.log
            time.sleep(0.05)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log
        with contextlib.suppress(httpx.HTTPError):
            return self._manage("/roots/0").is_success
        return False

    def _manage(self, path: str) -> httpx.Response:
        with httpx.Client(verify=str(self.ca_file), timeout=60) as http:
            return http.get(f"https://localhost:{self._management}{path}")

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    @property
    def log(self) -> str:
        return (self._directory / "pebble.log").read_text()
