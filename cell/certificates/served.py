"""What domains are served with now, read again when a file has changed."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives import hashes

from cell.certificates import pki


@dataclass(frozen=True)
class Leaf:
    """Of a certificate, what is asked again and again; moments in seconds of the epoch."""

    stamp: tuple[int, int]
    fingerprint: str
    not_after: float
    renew_at: float


class ServedCertificates:
    def __init__(self, home: Path) -> None:
        self._home = home
        self._read: dict[str, Leaf] = {}

    def find(self, host: str) -> Leaf | None:
        """None where there is nothing that a client could take."""
        try:
            found = pki.domain_pair(self._home, host)[0].stat()
        except OSError:
            return None
        stamp = (found.st_mtime_ns, found.st_ino)
        kept = self._read.get(host)
        if kept is not None and kept.stamp == stamp:
            return kept
        leaf = pki.domain_leaf(self._home, host)
        if leaf is None:
            return None
        self._read[host] = Leaf(
            stamp,
            leaf.fingerprint(hashes.SHA256()).hex(),
            leaf.not_valid_after_utc.timestamp(),
            pki.renew_at(leaf).timestamp(),
        )
        return self._read[host]

    def forget_all_but(self, hosts: Collection[str]) -> None:
        self._read = {host: leaf for host, leaf in self._read.items() if host in hosts}
