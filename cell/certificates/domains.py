"""The custom domains of a cell: their certificates, and what the cell tells of them."""

import asyncio
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cell.certificates import pki
from cell.certificates.acme.certifier import Certifier
from cell.certificates.acme.ledger import Ledger
from cell.certificates.acme.problems import without_addresses
from cell.certificates.served import ServedCertificates
from cell.settings import CellSettings
from cell.timestamps import moment


class Domains:
    """From the local CA at once, and where a server is set, then from it by ACME."""

    def __init__(self, settings: CellSettings, home: Path, ledger: Ledger) -> None:
        self._settings = settings
        self._home = home
        self._ledger = ledger
        self._served = ServedCertificates(home)
        self._certifier = Certifier(settings, ledger, home, self._served)

    async def ensure(self, hosts: Mapping[str, str]) -> None:
        """Returns once each of the hosts, and no other, has a certificate to be served with.

        With each host comes the tenant it belongs to.
        """
        wanted = sorted(hosts)
        await asyncio.to_thread(self._ensure, wanted)
        self._served.forget_all_but(wanted)
        self._certifier.want(hosts)

    async def close(self) -> None:
        await self._certifier.close()

    def told(self, hosts: Iterable[str]) -> list[dict[str, Any]]:
        return [{"hostname": host, "certificate": self._certificate(host)} for host in hosts]

    def _ensure(self, hosts: list[str]) -> None:
        settings = self._settings
        by_acme = bool(settings.acme_directory)
        now = datetime.now(UTC)
        pki.ensure_domains(self._home, settings.region, hosts, now, by_acme=by_acme)

    def _certificate(self, host: str) -> dict[str, Any]:
        leaf, state = self._served.find(host), self._ledger.state(host)
        by_acme = leaf is not None and leaf.fingerprint == state.fingerprint
        status, reason, retry_at = "issued", None, None
        if self._settings.acme_directory:
            if state.reason is not None:
                status, retry_at = "failed", state.next_at
                reason = without_addresses(state.reason)
            elif not by_acme:
                status = "pending"
        return {
            "issued_by": "acme" if by_acme else "local",
            "not_after": moment(leaf.not_after if leaf else None),
            "status": status,
            "status_reason": reason,
            "retry_at": moment(retry_at),
        }
