"""Who gets a certificate from the ACME server, and when it is tried again."""

import asyncio
import contextlib
import contextvars
import random
import time
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from cell.certificates import pki
from cell.certificates.acme import challenge, issuing
from cell.certificates.acme.daemon_threads import in_daemon_thread
from cell.certificates.acme.ledger import Account, AcmeOrder, DomainState, Ledger
from cell.certificates.acme.problems import AcmeError
from cell.certificates.served import ServedCertificates
from cell.settings import CellSettings

if TYPE_CHECKING:
    from cell.certificates.acme.server import AcmeServer

log = structlog.get_logger("cell.acme")

LOOK_AGAIN_S = 3_600.0
# After too much was asked all domains wait, but the others not as long as the one it was about.
LIMITED_S = 300.0
RETRY_AFTER_MAX_S = 7 * 86_400.0


class Certifier:
    """One order at a time; what is in force stays until its successor is there."""

    def __init__(
        self, settings: CellSettings, ledger: Ledger, home: Path, served: ServedCertificates
    ) -> None:
        self._settings = settings
        self._ledger = ledger
        self._home = home
        self._served = served
        self._hosts: frozenset[str] = frozenset()
        self._server: AcmeServer | None = None
        self._rests_until = 0.0
        self._server_failures = 0
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def want(self, hosts: Collection[str]) -> None:
        """From now on these domains, and no others."""
        self._hosts = frozenset(hosts)
        self._ledger.forget_all_but(self._hosts)
        if self._settings.acme_directory:
            if self._task is None and self._hosts:
                challenge.withdraw_all(self._home)
                # Not in the context of the request that was first, whose id it would log.
                self._task = asyncio.create_task(self._run(), context=contextvars.Context())
            self._changed.set()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            wait_s = self._settings.acme_retry_s
            try:
                wait_s = await self._round()
            except Exception as error:  # noqa: BLE001 - a full disk must not end what certifies
                log.error("acme.round_failed", reason=repr(error))  # noqa: TRY400 - one line
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), wait_s)
            self._changed.clear()

    async def _round(self) -> float:
        """Tries whoever is due, and answers how long nobody will be."""
        due = {host: self._due_at(host) for host in self._hosts}
        # Who was tried least lately goes first, so that a broken domain holds up no other.
        for host in sorted(due, key=lambda each: self._ledger.state(each).failures):
            if due[host] <= time.time() and host in self._hosts and not self._rests():
                await self._try(host)
        times = [max(self._rests_until, self._due_at(host)) for host in self._hosts]
        return min([LOOK_AGAIN_S, *(max(0.05, at - time.time()) for at in times)])

    def _rests(self) -> bool:
        return time.time() < self._rests_until

    def _due_at(self, host: str) -> float:
        state, leaf = self._ledger.state(host), self._served.find(host)
        ours = leaf is not None and leaf.fingerprint == state.fingerprint
        if leaf is None or not ours or state.directory != self._settings.acme_directory:
            return state.next_at
        return max(state.next_at, leaf.renew_at)

    async def _try(self, host: str) -> None:
        try:
            await self._certify(host)
        except AcmeError as error:
            self._failed(host, error)
        except Exception as error:  # noqa: BLE001 - of this domain; others have their turn
            log.error("acme.broken", host=host, reason=repr(error))  # noqa: TRY400 - one line
            self._failed(host, AcmeError("refused", "internal error in the cell; see its log"))
        else:
            self._server_failures = 0
            log.info("acme.issued", host=host)

    async def _certify(self, host: str) -> None:
        directory, ledger = self._settings.acme_directory, self._ledger
        server = await self._connected()
        order = ledger.order(host, directory)
        if order is None:
            state = ledger.state(host)
            state.ordered_at.append(time.time())
            # Kept before it is asked for, and a wait with it: no way of ending makes a loop of it.
            state.next_at = time.time() + self._pace_s(host, state)
            ledger.keep(host, state)
            order = AcmeOrder(await in_daemon_thread(server.order, host), issuing.new_key())
            ledger.keep_order(host, directory, order)
        chain_pem = await issuing.fulfil(server, self._home, host, order)
        if host not in self._hosts:
            return  # removed meanwhile
        key_pem = order.key_pem.encode()
        await asyncio.to_thread(pki.install_domain, self._home, host, chain_pem, key_pem)
        self._issued(host)

    def _issued(self, host: str) -> None:
        leaf = self._served.find(host)
        if leaf is None:  # removed while it was written
            return
        state = self._ledger.state(host)
        state.directory = self._settings.acme_directory
        state.fingerprint = leaf.fingerprint
        state.failures, state.reason = 0, None
        state.next_at = time.time() + self._pace_s(host, state)
        self._ledger.keep(host, state)
        self._ledger.end_order(host)

    async def _connected(self) -> "AcmeServer":
        """The server, with an account; both are kept for as long as they work."""
        if self._server is not None:
            return self._server
        directory = self._settings.acme_directory
        account = self._ledger.account(directory)
        if account is None:
            account = Account(issuing.new_key(), None)
            self._ledger.keep_account(directory, account)
        server = await in_daemon_thread(connect, self._settings, account)
        if account.url is None:
            url = await in_daemon_thread(server.register)
            self._ledger.keep_account(directory, Account(account.key_pem, url))
        self._server = server
        return server

    def _failed(self, host: str, error: AcmeError) -> None:
        # Made anew next time: a directory may have changed as well.
        self._server = None
        state = self._ledger.state(host)
        state.failures += 1
        state.reason = error.text
        asked_s = min(RETRY_AFTER_MAX_S, error.retry_after_s or 0.0)
        wait_s = max(asked_s, self._pace_s(host, state))
        state.next_at = time.time() + wait_s * random.uniform(1.0, 1.1)  # noqa: S311 - no secret
        self._ledger.keep(host, state)
        log.warning(
            "acme.failed", host=host, kind=error.kind, reason=error.text, retry_in_s=round(wait_s)
        )
        if error.kind == "order":
            self._ledger.end_order(host)
        elif error.kind == "limited":
            self._rests_until = time.time() + min(LIMITED_S, asked_s)
        elif error.kind in {"server", "account"}:
            self._rest(asked_s, forget_account=error.kind == "account")

    def _rest(self, asked_s: float, *, forget_account: bool) -> None:
        """The server serves nobody now: one domain was tried, and no other need be."""
        settings = self._settings
        self._server_failures += 1
        alike = DomainState(failures=self._server_failures)
        wait_s = alike.pace_s(settings.acme_retry_s, settings.acme_retry_max_s)
        self._rests_until = time.time() + max(asked_s, wait_s)
        account = self._ledger.account(settings.acme_directory)
        if forget_account and account is not None:
            self._ledger.keep_account(settings.acme_directory, Account(account.key_pem, None))

    def _pace_s(self, host: str, state: DomainState) -> float:
        """Where a certificate runs out, it is tried more often towards its end."""
        settings = self._settings
        wait_s = state.pace_s(settings.acme_retry_s, settings.acme_retry_max_s)
        leaf = self._served.find(host)
        if leaf is None or leaf.fingerprint != state.fingerprint:
            return wait_s
        left_s = leaf.not_after - time.time()
        return min(wait_s, max(settings.acme_retry_s, left_s / 4))


def connect(settings: CellSettings, account: Account) -> "AcmeServer":
    # A quarter of a second, which a cell without ACME need not spend, and others spend apart.
    from cell.certificates.acme.server import AcmeServer  # noqa: PLC0415

    return AcmeServer(settings, issuing.key_of(account.key_pem), account.url)
