"""Owns how the tests speak to an app: by HTTP in memory, or event by event over ASGI."""

import asyncio
import copy
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from specserver import App

TOKEN = "a-token-that-must-never-be-repeated"
DOCUMENT = Path(__file__).parent / "bakery" / "openapi.yaml"
HANDLERS = "contract_tests.specserver.bakery"
Events = list[dict[str, Any]]


def verify(token: str) -> dict[str, str] | None:
    return {"name": "baker"} if token == TOKEN else None


def bakery(**options: Any) -> App:
    """The sample API with one loaf on its shelf."""
    loaf = {"id": 1, "name": "rye", "grams": 900, "sliced": False, "tags": ["dark"]}
    defaults: dict[str, Any] = {
        "handlers": HANDLERS,
        "security": {"key": verify},
        "state": {"loaves": {1: loaf}},
        "validate_responses": True,
    }
    return App(DOCUMENT, **(defaults | options))


def call(app: Any, method: str, path: str, **options: Any) -> httpx.Response:
    """One request, with the token unless `headers` say otherwise."""

    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=True)
        headers = options.pop("headers", {"authorization": f"Bearer {TOKEN}"})
        async with httpx.AsyncClient(transport=transport, base_url="http://bakery") as client:
            return await client.request(method, path, headers=headers, **options)

    return asyncio.run(send())


def authorized(**headers: str) -> dict[str, str]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return {"authorization": f"Bearer {TOKEN}"} | named


def scope(method: str, path: str, headers: dict[str, str] | None = None, **more: Any) -> Any:
    given = headers if headers is not None else authorized()
    bare, _, query = path.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": bare,
        "raw_path": bare.encode(),
        "query_string": query.encode(),
        "headers": [(k.lower().encode(), v.encode("latin-1")) for k, v in given.items()],
        "client": ("192.0.2.1", 1234),
        **more,
    }


async def play(app: Any, scope_: Any, events: Events, *, then_gone: bool = False) -> Events:
    """Hands the app these events, and either hangs up or stays; what it sent comes back."""
    sent: Events = []
    waiting = list(events)

    async def receive() -> dict[str, Any]:
        if waiting:
            return waiting.pop(0)
        if not then_gone:
            await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def send(event: dict[str, Any]) -> None:
        sent.append(event)

    await app(scope_, receive, send)
    return sent


def request_event(body: bytes = b"", *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


def minimal(operation: dict[str, Any], path: str = "/thing", **parts: Any) -> dict[str, Any]:
    """A document of one operation, `thing.do`, unless it says otherwise."""
    method = parts.pop("method", "get")
    given = {"operationId": "thing.do", "responses": {"200": {"description": "Done."}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "One", "version": "1"},
        "paths": {path: {method: given | copy.deepcopy(operation)}},
        **parts,
    }


def served(document: dict[str, Any], handler: Callable[..., Any], **options: Any) -> App:
    """An app whose operation `thing.do` is this function."""
    return App(document, handlers=package(do=handler), **options)


def package(**functions: Callable[..., Any]) -> str:
    """The name of a new package whose module `thing` holds these functions."""
    name = f"specserver_sample_{id(functions):x}"
    outer, inner = types.ModuleType(name), types.ModuleType(f"{name}.thing")
    outer.__path__ = []
    for function_name, function in functions.items():
        setattr(inner, function_name, function)
    sys.modules[name], sys.modules[f"{name}.thing"] = outer, inner
    return name
