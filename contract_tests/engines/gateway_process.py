"""A gateway as a process of its own, before the engines of a cell that tests run."""

import json
import subprocess
import sys
from pathlib import Path

from contract_tests.cell.rig import Rig, until

SERVE = Path(__file__).parents[1] / "gateway" / "serve.py"


class GatewayProcess:
    """Listens for one protocol, at `port`; `authority` is the file of who signed for it."""

    def __init__(self, rig: Rig, protocol: str) -> None:
        self.rig = rig
        self._process = subprocess.Popen(
            [sys.executable, str(SERVE), str(rig.home), json.dumps({"ports": {protocol: 0}})],
            stderr=subprocess.DEVNULL,
        )
        described = rig.home / "run" / "gateway.json"
        until(described.exists, "the gateway runs")
        self.port = json.loads(described.read_bytes())["ports"][protocol]
        self.authority = str(rig.home / "pki" / "root.pem")

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()
