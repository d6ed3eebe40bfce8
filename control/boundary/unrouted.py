"""Requests that no boundary sees, as they are for a page or for no operation: how many may come."""

from control.boundary import charges
from control.boundary.addresses import Proxies
from control.boundary.rates import Limiter
from control.boundary.windows import LibraryMeter, LocalWindows
from control.settings import ControlSettings
from specserver import Request, TooManyRequests

_ADDRESSES_MAX = 50_000


class UnroutedLimit:
    """Counts in this process alone: it is asked on the event loop, which waits for no server."""

    def __init__(self, proxies: Proxies, settings: ControlSettings) -> None:
        meter = LibraryMeter(LocalWindows(keys_max=_ADDRESSES_MAX))
        self._limiter = Limiter(meter if settings.rate_limits else None, settings.rates)
        self._proxies = proxies

    def charge(self, request: Request) -> None:
        """Raises where the address has made too many; whether it has a token is not looked at."""
        forwarded_for = request.headers.get("x-forwarded-for")
        address = self._proxies.client_address(request.client, forwarded_for)
        verdict = self._limiter.charge_all(charges.by_address("pages", address))
        if verdict is not None and not verdict.allowed:
            raise TooManyRequests(
                "too many requests for pages and for paths and methods that do not exist; try"
                f" again in {verdict.retry_after_s} s",
                code="rate_limited",
                headers=verdict.headers,
            )
