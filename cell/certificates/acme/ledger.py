"""What a cell keeps of its dealings with ACME servers, so that no restart makes it forget them."""

import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

import orjson

from cell.database import Database
from cell.sealing import Sealer

# Servers count the orders of a week.
REMEMBERED_S = 7 * 86_400.0


@dataclass
class DomainState:
    """How a domain stands. `reason` says why the last attempt failed; None where it did not.

    `directory` and `fingerprint` are of the certificate that was issued last, `ordered_at` has
    the times of the orders of the last week, `failures` those since a certificate was issued.
    """

    directory: str | None = None
    fingerprint: str | None = None
    ordered_at: list[float] = field(default_factory=list)
    failures: int = 0
    reason: str | None = None
    next_at: float = 0.0

    def pace_s(self, first_s: float, most_s: float) -> float:
        """How long to wait now: the longer, the more was ordered lately, or failed."""
        times = max(len(self.ordered_at), self.failures)
        wait_s = first_s
        for _ in range(times - 1):
            wait_s = min(most_s, wait_s * 2)
        return min(most_s, wait_s)


@dataclass(frozen=True)
class Account:
    key_pem: str
    url: str | None


@dataclass(frozen=True)
class AcmeOrder:
    """An order that is under way, and the key its certificate will be of."""

    url: str
    key_pem: str


class Ledger:
    """Keys rest sealed; the cell's event loop is the only user."""

    def __init__(self, database: Database, sealer: Sealer) -> None:
        self._database = database
        self._sealer = sealer

    def account(self, directory: str) -> Account | None:
        query = "SELECT sealed, url FROM acme_accounts WHERE directory = ?"
        row = self._database.row(query, directory)
        return None if row is None else Account(self._sealer.open(row[0], directory), row[1])

    def keep_account(self, directory: str, account: Account) -> None:
        self._database.write(
            "INSERT OR REPLACE INTO acme_accounts VALUES (?, ?, ?)",
            *(directory, self._sealer.seal(account.key_pem, directory), account.url),
        )

    def state(self, host: str) -> DomainState:
        row = self._database.row("SELECT standing FROM acme_domains WHERE host = ?", host)
        if row is None:
            return DomainState()
        found = DomainState(**orjson.loads(row[0]))
        since = time.time() - REMEMBERED_S
        found.ordered_at = [at for at in found.ordered_at if at > since]
        return found

    def keep(self, host: str, state: DomainState) -> None:
        self._database.write(
            "INSERT OR REPLACE INTO acme_domains VALUES (?, ?)",
            *(host, orjson.dumps(asdict(state)).decode()),
        )

    def order(self, host: str, directory: str) -> AcmeOrder | None:
        """The order under way with this server, if there is one."""
        query = "SELECT url, sealed FROM acme_orders WHERE host = ? AND directory = ?"
        row = self._database.row(query, host, directory)
        return None if row is None else AcmeOrder(row[0], self._sealer.open(row[1], host))

    def keep_order(self, host: str, directory: str, order: AcmeOrder) -> None:
        self._database.write(
            "INSERT OR REPLACE INTO acme_orders VALUES (?, ?, ?, ?)",
            *(host, directory, order.url, self._sealer.seal(order.key_pem, host)),
        )

    def end_order(self, host: str) -> None:
        self._database.write("DELETE FROM acme_orders WHERE host = ?", host)

    def forget_all_but(self, hosts: Iterable[str]) -> None:
        """Who removes a domain and adds it again is still known for the orders of the week."""
        kept = set(hosts)
        for (host,) in self._database.rows("SELECT host FROM acme_orders"):
            if host not in kept:
                self.end_order(host)
        for (host,) in self._database.rows("SELECT host FROM acme_domains"):
            if host not in kept and not self.state(host).ordered_at:
                self._database.write("DELETE FROM acme_domains WHERE host = ?", host)
