"""A house with other settings than those that all tests of it share."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from contract_tests.api.harness import House
from contract_tests.api.oracle import document, scim_document
from control.boundary.rates import make_limiter
from control.mail import Mailer
from control.settings import RateLimits
from menagerie.composition import build_app
from menagerie.settings import Settings


@contextmanager
def another(
    house: House,
    folder: Path,
    *,
    mailer: Mailer | None = None,
    rates: RateLimits | None = None,
    **chosen: Any,
) -> Iterator[House]:
    """The house with other settings, on the same database."""
    settings = Settings(home=folder, dev=True, **chosen)
    known = replace(
        house.services.settings,
        base_url=settings.api_url,
        rate_limits=rates is not None,
        rates=rates or RateLimits(),
        trusted_proxies=settings.trusted_proxies,
    )
    limiter = make_limiter("memory", known, house.database)
    services = replace(
        house.services, settings=known, limiter=limiter, mailer=mailer or house.letters
    )
    before = house.app, house.services
    house.app = build_app(settings, services, document=document(), scim_document=scim_document())
    house.services = services
    try:
        yield house
    finally:
        house.app.threads.stop()
        house.app, house.services = before
