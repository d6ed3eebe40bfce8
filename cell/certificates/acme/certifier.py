"""Who gets a certificate from the ACME server, and when it is tried again."""

import asyncio
import contextlib
import contextvars
import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from cell.certificates import pki
from cell.certificates.acme import challenge, issuing
from cell.certificates.acme.ledger import Account, AcmeOrder, DomainState, Ledger
from cell.certificates.acme.problems import AcmeError
from cell.certificates.acme.schedule import OrderSchedule
from cell.certificates.served import ServedCertificates
from cell.runtime.own_threads import in_daemon_thread
from cell.settings import CellSettings

if TYPE_CHECKING:
    from cell.certificates.acme.server import AcmeServer

log = structlog.get_logger("cell.acme")

LOOK_AGAIN_S = 3_600.0
# After too much was asked the tenant's domains wait, but not as long as the one it was about.
LIMITED_S = 300.0
RETRY_AFTER_MAX_S = 7 * 86_400.0


class Certifier:
    """Tenants take turns; what is in force stays until its successor is there."""

    def __init__(
        self, settings: CellSettings, ledger: Ledger, home: Path, served: ServedCertificates
    ) -> None:
        self._settings = settings
        self._ledger = ledger
        self._home = home
        self._served = served
        self._schedule = OrderSchedule()
        self._server: AcmeServer | None = None
        self._connecting = asyncio.Lock()
        self._rests_until = 0.0
        self._server_failures = 0
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._attempts: set[asyncio.Task[None]] = set()

    def want(self, hosts: Mapping[str, str]) -> None:
        """From now on these domains, each of the tenant given with it, and no others."""
        self._schedule.want(hosts)
        self._ledger.forget_all_but(hosts)
        if self._settings.acme_directory:
            if self._task is None and hosts:
                challenge.withdraw_all(self._home)
                # Not in the context of the request that was first, whose id it would log.
                self._task = asyncio.create_task(self._run(), context=contextvars.Context())
            self._changed.set()

    async def close(self) -> None:
        ending = [*self._attempts, *filter(None, [self._task])]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            wait_s = self._settings.acme_retry_s
            try:
                wait_s = self._begin_due()
            except Exception as error:  # noqa: BLE001 - a full disk must not end what certifies
                log.error("acme.round_failed", reason=repr(error))  # noqa: TRY400 - one line
            # Not `wait_for`: in Python 3.11 it may forget that this task was cancelled.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()
            self._changed.clear()

    def _begin_due(self) -> float:
        """Answers how long nothing else is to be begun."""
        schedule = self._schedule
        while not self._rests() and (host := schedule.choose(self._due_at, self._failures)):
            attempt = asyncio.create_task(self._attempt(host, schedule.begin(host)))
            self._attempts.add(attempt)
            attempt.add_done_callback(self._attempts.discard)
        wait_s = schedule.wait_s(self._due_at, LOOK_AGAIN_S)
        return max(0.05, wait_s, min(LOOK_AGAIN_S, self._rests_until - time.time()))

    async def _attempt(self, host: str, tenant: str) -> None:
        try:
            await self._try(host, tenant)
        except Exception as error:  # noqa: BLE001 - what could not be noted would be tried at once
            log.error("acme.round_failed", reason=repr(error))  # noqa: TRY400 - one line
            self._rests_until = time.time() + self._settings.acme_retry_s
        finally:
            self._schedule.end(tenant)
            self._changed.set()

    def _failures(self, host: str) -> int:
        return self._ledger.state(host).failures

    def _rests(self) -> bool:
        return time.time() < self._rests_until

    def _due_at(self, host: str) -> float:
        state, leaf = self._ledger.state(host), self._served.find(host)
        ours = leaf is not None and leaf.fingerprint == state.fingerprint
        if leaf is None or not ours or state.directory != self._settings.acme_directory:
            return state.next_at
        return max(state.next_at, leaf.renew_at)

    async def _try(self, host: str, tenant: str) -> None:
        try:
            await self._certify(host, tenant)
        except AcmeError as error:
            self._failed(host, tenant, error)
        except Exception as error:  # noqa: BLE001 - of this domain; others have their turn
            log.error("acme.broken", host=host, reason=repr(error))  # noqa: TRY400 - one line
            self._failed(
                host, tenant, AcmeError("refused", "internal error in the cell; see its log")
            )
        else:
            self._server_failures = 0
            log.info("acme.issued", host=host)

    async def _certify(self, host: str, tenant: str) -> None:
        directory, ledger = self._settings.acme_directory, self._ledger
        server = await self._connected()
        order = ledger.order(host, directory)
        if order is None:
            state = ledger.state(host)
            state.ordered_at.append(time.time())
            # Kept before it is asked for, and a wait with it: no way of ending makes a loop of it.
            state.next_at = time.time() + self._pace_s(host, state)
            ledger.keep(host, state)
            self._schedule.ordered(tenant)
            order = AcmeOrder(await in_daemon_thread(server.order, host), issuing.new_key())
            ledger.keep_order(host, directory, order)
        chain_pem = await issuing.fulfil(server, self._home, host, order)
        if host not in self._schedule.hosts:
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
        async with self._connecting:
            if self._server is None:
                self._server = await self._connect()
            return self._server

    async def _connect(self) -> "AcmeServer":
        directory = self._settings.acme_directory
        account = self._ledger.account(directory)
        if account is None:
            account = Account(issuing.new_key(), None)
            self._ledger.keep_account(directory, account)
        server = await in_daemon_thread(connect, self._settings, account)
        if account.url is None:
            url = await in_daemon_thread(server.register)
            self._ledger.keep_account(directory, Account(account.key_pem, url))
        return server

    def _failed(self, host: str, tenant: str, error: AcmeError) -> None:
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
            self._schedule.rest(tenant, min(LIMITED_S, asked_s))
        elif error.kind in {"server", "account"}:
            self._rest(asked_s, forget_account=error.kind == "account")

    def _rest(self, asked_s: float, *, forget_account: bool) -> None:
        """The server serves nobody now: one domain was tried, and no other need be."""
        settings = self._settings
        # Of several attempts at once, one tells it.
        self._server_failures += not self._rests()
        alike = DomainState(failures=self._server_failures)
        wait_s = alike.pace_s(settings.acme_retry_s, settings.acme_retry_max_s)
        self._rests_until = max(self._rests_until, time.time() + max(asked_s, wait_s))
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
