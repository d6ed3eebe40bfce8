"""A gateway as a process of its own, before the engines of a cell that tests run."""

import json

from contract_tests.cell.rig import Rig, until
from contract_tests.forked import fork
from contract_tests.gateway.rig import SERVE


class GatewayProcess:
    """Listens for one protocol, at `port`; `authority` is the file of who signed for it."""

    def __init__(self, rig: Rig, protocol: str) -> None:
        self.rig = rig
        words = [str(rig.home), json.dumps({"ports": {protocol: 0}})]
        self._process = fork(SERVE, words, log=rig.log_path)
        described = rig.home / "run" / "gateway.json"
        until(described.exists, "the gateway runs")
        self.port = json.loads(described.read_bytes())["ports"][protocol]
        self.authority = str(rig.home / "pki" / "root.pem")

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()
