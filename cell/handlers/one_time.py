"""Operations of the tag One-time: what a signed URL gives, once."""

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import structlog

from cell.access import network
from cell.access.tokens import Claims
from cell.agent import Cell
from cell.console import mount
from cell.console.service import has_console
from cell.console.sessions import LASTS_S
from cell.instances.data_streams import DataStream
from cell.instances.hosted import HostedInstance
from cell.instances.log_followers import LogFollower
from cell.instances.pools import share_of
from cell.instances.state import GONE
from cell.runtime import log_files
from pages import alone
from pages.console import COOKIE, link_notice
from specserver import Conflict, Problem, Reply, Request, TooManyRequests
from specserver.streaming import Held

TEXT = "text/plain; charset=utf-8"
BYTES = "application/octet-stream"
ZSTD = "application/zstd"
_TOO_MANY = "too many logs are being followed in this cell; try again in a moment"

log = structlog.get_logger("cell.one_time")


async def reveal(cell: Cell, token: str) -> dict[str, Any]:
    return cell.lifecycle.revealed(_spend(cell, token, "reveal"))


async def rotate(cell: Cell, token: str) -> dict[str, Any]:
    claims = cell.tokens.check(token, "rotate")
    instance = _spend(cell, token, "rotate")
    # To replace a credential is to shut out whoever came by the former one.
    cell.tokens.outdate(claims)
    cell.console.end_all(instance.instance_id)
    cell.supervisor.pools.followed_logs.end_all(instance.instance_id)
    cell.supervisor.pools.data_streams.end_all(instance.instance_id)
    overlap_s = claims.overlap_s
    if overlap_s is None:
        overlap_s = instance.record.spec.rotation_overlap_s
    return await cell.lifecycle.rotate(instance, overlap_s)


async def console(cell: Cell, token: str, request: Request) -> Reply:
    try:
        return _begin_console(cell, token, request.client or "")
    except Problem as problem:
        if not alone.wants_page(request.headers.get("Accept", "")):
            raise
        page, headers = alone.notice(*link_notice(problem.code, problem.detail))
        return Reply(problem.status, page, headers, alone.HTML)


def _begin_console(cell: Cell, token: str, address: str) -> Reply:
    claims = cell.tokens.check(token, "console")
    instance = cell.lifecycle.find(claims.instance_id)
    driver = instance.driver
    if not has_console(driver.engine, driver.protocol):
        raise Conflict(f"{driver.engine} has no SQL console")
    network.check_reach(instance.record.spec, address, "the console")
    instance_id = _spend(cell, token, "console").instance_id
    secret = cell.console.sessions.begin(instance_id, claims.name, claims.holder, claims.person)
    path = f"{mount.ROOT}/{instance_id}/"
    marks = f"Max-Age={LASTS_S:.0f}; Path={path}; Secure; HttpOnly; SameSite=Strict"
    headers = {"Location": path, "Set-Cookie": f"{COOKIE}={secret}; {marks}"}
    return Reply(303, None, {**headers, "Referrer-Policy": "no-referrer"})


async def logs(cell: Cell, token: str, follow: bool, tail_lines: int, request: Request) -> Reply:
    if follow:
        return Reply.stream(_followed(cell, token, tail_lines, request.client or ""), TEXT)
    path = _spend(cell, token, "logs").site.log
    return Reply.stream(log_files.once(path, tail_lines), TEXT)


def _followed(cell: Cell, token: str, tail_lines: int, address: str) -> Held:
    claims, followers = cell.tokens.check(token, "logs"), cell.supervisor.pools.followed_logs
    instance = cell.lifecycle.find(claims.instance_id)
    whose = share_of(instance.record.tenant, claims.person)
    follower = LogFollower(instance, address, whose, claims.holder)
    if makes_room := followers.has_most(follower):
        # A URL that was used already ends nobody's.
        _spend(cell, token, "logs")
        followers.end_oldest(follower)
    if not followers.try_join(follower):
        raise TooManyRequests(_TOO_MANY, code="too_many_at_once", headers={"Retry-After": "1"})
    leave = partial(followers.leave, follower)
    try:
        if not makes_room:
            _spend(cell, token, "logs")
        path = instance.site.log
        return Held(log_files.follow(path, tail_lines, follower.is_over), leave)
    except BaseException:
        leave()
        raise


async def dump(cell: Cell, token: str, request: Request) -> Reply:
    claims = cell.tokens.check(token, "dump")
    stream = _data_stream(cell, claims, "the dump", request)
    suffix = cell.dumps.suffix(stream.instance)
    with cell.supervisor.pools.data_streams.place(stream):
        _spend(cell, token, "dump")
        chunks = await cell.dumps.begin(stream.instance, stream, claims.database)
        return _attachment(stream, chunks, f"{claims.name}.{suffix}", BYTES)


async def download(cell: Cell, token: str, request: Request) -> Reply:
    claims = cell.tokens.check(token, "download")
    stream = _data_stream(cell, claims, "the download of a backup", request)
    found = await cell.downloads.find(stream.instance, claims.backup_id)
    with cell.supervisor.pools.data_streams.place(stream):
        _burn(cell, claims)
        chunks = await cell.downloads.begin(stream, found)
        return _attachment(stream, chunks, f"{claims.name}-{found.backup_id}.tar.zst", ZSTD)


def _data_stream(cell: Cell, claims: Claims, what: str, request: Request) -> DataStream:
    instance, address = cell.lifecycle.find(claims.instance_id), request.client or ""
    network.check_reach(instance.record.spec, address)
    share = share_of(instance.record.tenant, claims.person)
    return DataStream(instance, what, address, share, claims.holder)


def _attachment(
    stream: DataStream, chunks: AsyncIterator[bytes], name: str, media_type: str
) -> Reply:
    """Whoever goes away before the first chunk lets go of what was begun, too."""
    held = Held(chunks, lambda: stream.end("its client went away, or has it all"))
    reply = Reply.stream(held, media_type)
    file = "".join(each for each in name if each.isascii() and (each.isalnum() or each in "._-"))
    reply.headers["Content-Disposition"] = f'attachment; filename="{file}"'
    return reply


def _spend(cell: Cell, token: str, action: str) -> HostedInstance:
    """Uses the token up, unless there is nothing yet that it could give."""
    claims = cell.tokens.check(token, action)
    instance = cell.lifecycle.find(claims.instance_id)
    if instance.record.desired in GONE or not cell.lifecycle.has_credentials(instance):
        raise Conflict(f"the instance is {instance.status}")
    _burn(cell, claims)
    return instance


def _burn(cell: Cell, claims: Claims) -> None:
    cell.tokens.burn(claims)
    log.info(
        "cell.one_time_used",
        action=claims.action,
        instance_id=claims.instance_id,
        issued_by=claims.request_id,
    )
