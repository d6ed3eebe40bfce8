"""The custom domains of a cell: their certificates, and what the cell tells of them."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cell import pki
from cell.acme.certifier import Certifier, fingerprint
from cell.acme.ledger import Ledger
from cell.residents import moment
from cell.settings import CellSettings


@dataclass(frozen=True)
class _InForce:
    """Of a certificate, what is told; `stamp` is that of its file."""

    stamp: tuple[int, int]
    fingerprint: str
    not_after: float


class Domains:
    """From the local CA at once, and where a server is set, then from it by ACME."""

    def __init__(self, settings: CellSettings, home: Path, ledger: Ledger) -> None:
        self._settings = settings
        self._home = home
        self._ledger = ledger
        self._certifier = Certifier(settings, ledger, home)
        self._read: dict[str, _InForce] = {}

    async def ensure(self, hosts: Iterable[str]) -> None:
        """Returns once each of the hosts, and no other, has a certificate to be served with."""
        wanted = sorted(set(hosts))
        await asyncio.to_thread(self._ensure, wanted)
        self._read = {host: each for host, each in self._read.items() if host in wanted}
        self._certifier.want(wanted)

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
        in_force, standing = self._in_force(host), self._ledger.standing(host)
        by_acme = in_force is not None and in_force.fingerprint == standing.fingerprint
        status, reason, retry_at = "issued", None, None
        if self._settings.acme_directory:
            if standing.reason is not None:
                status, reason, retry_at = "failed", standing.reason, standing.next_at
            elif not by_acme:
                status = "pending"
        return {
            "issued_by": "acme" if by_acme else "local",
            "not_after": moment(in_force.not_after if in_force else None),
            "status": status,
            "status_reason": reason,
            "retry_at": moment(retry_at),
        }

    def _in_force(self, host: str) -> _InForce | None:
        """Asked for again and again, so a file is read when it has changed."""
        try:
            found = pki.domain_pair(self._home, host)[0].stat()
        except OSError:
            return None
        kept = self._read.get(host)
        stamp = (found.st_mtime_ns, found.st_ino)
        if kept is not None and kept.stamp == stamp:
            return kept
        leaf = pki.domain_leaf(self._home, host)
        if leaf is None:
            return None
        not_after = leaf.not_valid_after_utc.timestamp()
        self._read[host] = _InForce(stamp, fingerprint(leaf), not_after)
        return self._read[host]
