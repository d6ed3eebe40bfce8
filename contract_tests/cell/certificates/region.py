"""A cell and its gateway in one home, a name server, and an ACME server that knows neither."""

import json
import signal
import socket
import ssl
from pathlib import Path
from typing import Any

import httpx
from cryptography import x509

from contract_tests.cell.certificates.pebble import Pebble
from contract_tests.cell.rig import DEADLINE_S, Rig, until
from contract_tests.forked import Forked, fork
from contract_tests.gateway.rig import SERVE, WAIT_S
from contract_tests.name_server import NameServer


class Region:
    """`start` brings all of it up. Names lead to the gateway once they are `point`ed there."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.names = NameServer()
        self.pebble = Pebble(directory, names=self.names.address)
        given = {
            "acme_directory": self.pebble.directory_url,
            "acme_ca_file": str(self.pebble.ca_file),
            "acme_contact": "ops@example.com",
            "acme_terms_agreed": True,
            "acme_retry_s": 0.2,
            "acme_retry_max_s": 1.0,
            **settings,
        }
        self.rig = Rig(directory / "cell", settings=given, bare=False)
        self._gateway: Forked | None = None
        self.ports: dict[str, int] = {}

    def start(self, **pebble: Any) -> None:
        self.names.start()
        self.rig.start()
        self._start_gateway()
        self.pebble.start(tls_port=self.ports["https"], **pebble)

    def _start_gateway(self) -> None:
        options = {"ports": {"https": 0, "postgres": 0}}
        words = [str(self.rig.home), json.dumps(options)]
        self._gateway = fork(SERVE, words, log=self.rig.log_path, new_session=True)
        described = self.rig.home / "run" / "gateway.json"
        until(described.exists, "the gateway started")
        self.ports = json.loads(described.read_bytes())["ports"]

    def close(self) -> None:
        if self._gateway is not None:
            self._gateway.send_signal(signal.SIGTERM)
            self._gateway.wait(WAIT_S)
        self.rig.destroy()
        self.pebble.close()
        self.names.close()

    def point(self, *hosts: str) -> None:
        self.names.addresses["gateway.test"] = "127.0.0.1"
        self.names.records |= dict.fromkeys(hosts, "gateway.test")

    # What is observed.

    def certificate(self, instance_id: str, host: str) -> dict[str, Any]:
        told = self.rig.observe(instance_id)["domains"]
        return dict(next(one["certificate"] for one in told if one["hostname"] == host))

    def issued(self, instance_id: str, host: str) -> dict[str, Any]:
        """What is told of the certificate, once it is the ACME server's and as it should be."""

        def there() -> dict[str, Any] | None:
            told = self.certificate(instance_id, host)
            wanted = told["issued_by"] == "acme" and told["status"] == "issued"
            return told if wanted else None

        found: dict[str, Any] = until(there, f"{host} has a certificate of the ACME server")
        return found

    def failed(
        self, instance_id: str, host: str, why: str, within_s: float = DEADLINE_S
    ) -> dict[str, Any]:
        def there() -> dict[str, Any] | None:
            told = self.certificate(instance_id, host)
            return told if told["status"] == "failed" and why in told["status_reason"] else None

        found: dict[str, Any] = until(there, f"{host} is told to have failed: {why}", within_s)
        return found

    # What clients do.

    def trusting(self, pem: str | None = None) -> ssl.SSLContext:
        """Trusts the root of the ACME server, and nothing else."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=pem or self.pebble.root_pem)
        return context

    def trusting_local(self) -> ssl.SSLContext:
        return self.trusting((self.rig.home / "pki" / "root.pem").read_text())

    def handshake(self, host: str, context: ssl.SSLContext, protocol: str = "https") -> bytes:
        """The certificate, in DER; raises where the client does not take it."""
        with (
            socket.create_connection(("127.0.0.1", self.ports[protocol]), WAIT_S) as plain,
            context.wrap_socket(plain, server_hostname=host) as connection,
        ):
            shown = connection.getpeercert(binary_form=True)
        assert shown is not None
        return shown

    def shown(self, host: str) -> x509.Certificate:
        """The certificate as it is, also where no client would take it any more."""
        return x509.load_der_x509_certificate(self.handshake(host, unverifying()))

    def taken(self, host: str, context: ssl.SSLContext) -> bool:
        try:
            self.handshake(host, context)
        except ssl.SSLError:  # also while the gateway does not know the host yet
            return False
        return True

    def served_locally(self, host: str) -> None:
        """Once the gateway knows the host."""
        context = self.trusting_local()
        until(lambda: self.taken(host, context), f"{host} is served with the local certificate")

    def taken_by_postgres(self, host: str) -> bool:
        """TLS at once (PostgreSQL 17 calls it direct), and no session."""
        context = self.trusting()
        context.set_alpn_protocols(["postgresql"])
        try:
            self.handshake(host, context, "postgres")
        except ssl.SSLError:
            return False
        return True

    def versions(self, engine: str) -> list[str]:
        engines = self.rig.get("/v1/cell").json()["engines"]
        return next((list(one["versions"]) for one in engines if one["engine"] == engine), [])

    def query(self, host: str, password: str, context: ssl.SSLContext, sql: str) -> httpx.Response:
        with httpx.Client(verify=context, timeout=60) as http:
            return http.post(
                f"https://127.0.0.1:{self.ports['https']}/query",
                json={"sql": sql},
                auth=("app", password),
                headers={"host": host},
                extensions={"sni_hostname": host},
            )


def unverifying() -> ssl.SSLContext:
    """For tests of short-lived certificates, which may end while the test stalls."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
