"""Owns the handlers of loaves: a small store in memory, kept in the app's state."""

import asyncio
from collections.abc import Iterator
from typing import Any

from specserver import Conflict, Exchange, NotFound, PollAgain, Reply, Request

Loaf = dict[str, Any]


def list_(
    exchange: Exchange, limit: int, tag: list[str] | None, sort: str, sliced: bool | None = None
) -> Loaf:
    loaves = [
        loaf
        for loaf in exchange.app_state["loaves"].values()
        if (tag is None or set(tag) <= set(loaf["tags"]))
        and (sliced is None or loaf["sliced"] is sliced)
    ]
    loaves.sort(key=lambda loaf: loaf["grams"] if sort == "grams" else loaf["id"])
    return {"items": loaves[:limit]}


def bake(exchange: Exchange, body: Loaf, idempotency_key: str | None = None) -> Reply:
    loaves = exchange.app_state["loaves"]
    if any(loaf["name"] == body["name"] for loaf in loaves.values()):
        raise Conflict("a loaf of that name is on the shelf", code="name_taken", name=body["name"])
    number = max(loaves, default=0) + 1
    loaves[number] = {"id": number, "key": idempotency_key, **body}
    return Reply.created(loaves[number], location=f"/loaves/{number}")


async def get_(exchange: Exchange, loaf_id: int) -> Loaf:
    await asyncio.sleep(0)
    return _fetch(exchange, loaf_id)


def change(exchange: Exchange, loaf_id: int, body: Loaf) -> Loaf:
    loaf = _fetch(exchange, loaf_id)
    loaf.update(body)
    return loaf


def eat(exchange: Exchange, loaf_id: int) -> None:
    _fetch(exchange, loaf_id)
    del exchange.app_state["loaves"][loaf_id]


def crumbs(exchange: Exchange, loaf_id: int) -> Reply:
    loaf = _fetch(exchange, loaf_id)

    def fall() -> Iterator[str]:
        for number in range(3):
            yield f"crumb {number} of {loaf['name']}\n"

    return Reply.stream(fall(), "text/plain")


def await_(exchange: Exchange, loaf_id: int, attempts: int) -> Loaf:
    if exchange.attempt < attempts:
        raise PollAgain(0.001)
    return {"attempts": exchange.attempt, "loaf": loaf_id}


def burn(request: Request) -> None:
    raise RuntimeError(f"oven on fire, {request.headers['authorization']}")


def _fetch(exchange: Exchange, loaf_id: int) -> Loaf:
    loaf: Loaf | None = exchange.app_state["loaves"].get(loaf_id)
    if loaf is None:
        raise NotFound("no such loaf")
    return loaf
