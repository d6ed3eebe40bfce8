"""What an instance's logins are to be, kept by the cell: verifiers, and never a password."""

import asyncio
from collections.abc import Mapping, Sequence

import orjson

from cell.engines.driver import Login
from cell.engines.postgres import roles, scram
from cell.layout import Site, write_atomically
from cell.runtime.host import Host

WANTED = "logins.json"
APPLIED = "logins.applied"


def of_cell(host: Host, site: Site) -> Login:
    """For what the cell does as the owner where code of the owner's, or of a former holder, is."""
    return Login(roles.CELL, host.secret(site, "postgres tools"))


async def with_cells(site: Site, login: Login) -> dict[str, str]:
    """What is wanted, with the cell's own, which an instance of an earlier version has not."""
    kept = wanted(site)
    if kept and login.username not in kept:
        kept |= await asyncio.to_thread(_verifiers, [login], kept)
        keep(site, kept)
    return kept


async def begin(site: Site, login: Login) -> None:
    """A server that starts has been told of nothing yet."""
    await with_cells(site, login)
    forget_applied(site)


async def remember(site: Site, logins: Sequence[Login]) -> None:
    """Keeps the verifier of a password that was there before; a new one gets its own salt."""
    kept = wanted(site)
    found = await asyncio.to_thread(_verifiers, logins, kept)
    if found != kept or not (site.directory / WANTED).exists():
        keep(site, found)
    forget_applied(site)


def keep(site: Site, verifiers: Mapping[str, str]) -> None:
    write_atomically(site.directory / WANTED, orjson.dumps(verifiers))


def wanted(site: Site) -> dict[str, str]:
    """The verifiers by user name. The folder is the cell's: no engine sees it."""
    try:
        return dict(orjson.loads((site.directory / WANTED).read_bytes()))
    except FileNotFoundError:
        return {}


def of_clients(site: Site) -> dict[str, str]:
    return {name: verifier for name, verifier in wanted(site).items() if name != roles.CELL}


def applied(site: Site) -> bool:
    """Whether the engine was told since its last start, and since they last changed."""
    return (site.directory / APPLIED).exists()


def mark_applied(site: Site) -> None:
    (site.directory / APPLIED).touch(mode=0o600)


def forget_applied(site: Site) -> None:
    (site.directory / APPLIED).unlink(missing_ok=True)


def _verifiers(logins: Sequence[Login], kept: dict[str, str]) -> dict[str, str]:
    return {
        login.username: former
        if (former := kept.get(login.username)) and scram.fits(login.password, former)
        else scram.verifier(login.password)
        for login in logins
    }
