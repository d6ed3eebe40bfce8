"""Asking identity providers, which organizations name: with the guards that webhooks have.

A request that signs somebody in waits for the answer, so a provider that does not answer holds a
thread. How many are held so is bounded: for each organization, and in all.
"""

import asyncio
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Final, Protocol

import orjson

from control.delivery.dns_names import Names
from control.delivery.guarded import Fetched, GuardedClient, NotFetched
from control.delivery.receiver_urls import Reach, UrlRefused, receiver_url

WITHIN_S: Final = 5.0
BYTES_MAX: Final = 256 << 10
AT_ONCE_MAX: Final = 8
"""Of the threads that run handlers."""
OF_ONE_MAX: Final = 2
"""For one organization."""
_HTTP_OK: Final = 200


class ProviderUnavailable(Exception):  # noqa: N818 -- a state of the provider
    """It does not say what is needed; the detail is a sentence for an administrator."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class ProvidersBusy(Exception):  # noqa: N818 -- a state of this process
    """Too many wait for providers already; ask again."""


class Providers(Protocol):
    @property
    def reach(self) -> Reach:
        """What their addresses may be."""

    def fetch(
        self,
        url: str,
        *,
        whose: str,
        method: str = "GET",
        content: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> Fetched:
        """The whole answer, of any status. Raises ProviderUnavailable and ProvidersBusy.

        `whose` is the organization that named the URL.
        """


class GuardedProviders:
    """Safe to share between threads; counted in this process."""

    def __init__(
        self,
        reach: Reach,
        names: Callable[[], Names],
        *,
        within_s: float = WITHIN_S,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._reach, self._names, self._within_s, self._given = reach, names, within_s, tls
        self._waiting: Counter[str] = Counter()
        self._lock = threading.Lock()

    @property
    def reach(self) -> Reach:
        return self._reach

    def fetch(
        self,
        url: str,
        *,
        whose: str,
        method: str = "GET",
        content: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> Fetched:
        with self._turn(whose):
            try:
                return asyncio.run(self._fetch(method, url, content, headers or {}))
            except (UrlRefused, NotFetched) as error:
                raise ProviderUnavailable(f"{url}: {error}") from error

    @contextmanager
    def _turn(self, whose: str) -> Iterator[None]:
        with self._lock:
            full = self._waiting[whose] >= OF_ONE_MAX or self._waiting.total() >= AT_ONCE_MAX
            if full:
                raise ProvidersBusy
            self._waiting[whose] += 1
        try:
            yield
        finally:
            with self._lock:
                self._waiting[whose] -= 1
                if not self._waiting[whose]:
                    del self._waiting[whose]

    async def _fetch(
        self, method: str, url: str, content: bytes, headers: Mapping[str, str]
    ) -> Fetched:
        place = receiver_url(url, self._reach)
        client = GuardedClient(self._reach, self._names(), within_s=self._within_s, tls=self._tls)
        try:
            return await client.fetch(method, place, content, headers, bytes_max=BYTES_MAX)
        finally:
            await client.close()

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        """Read once: the certificates that the system trusts are many."""
        return self._given or ssl.create_default_context()


def read_json(providers: Providers, url: str, *, whose: str, **options: Any) -> Any:
    """What a provider answers with the status 200, as JSON."""
    options["headers"] = {"Accept": "application/json", **(options.get("headers") or {})}
    answer = providers.fetch(url, whose=whose, **options)
    if answer.status != _HTTP_OK:
        raise ProviderUnavailable(f"{url} answers with the status {answer.status}")
    return parsed(url, answer)


def parsed(url: str, answer: Fetched) -> Any:
    try:
        return orjson.loads(answer.body)
    except orjson.JSONDecodeError as error:
        raise ProviderUnavailable(f"what is at {url} is not JSON") from error
