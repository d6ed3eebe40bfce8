"""HTTP to an engine on its unix socket, as drivers need it: one request, one answer."""

import asyncio
import base64
import http.client
from pathlib import Path

import httpx
import orjson

from gateway import sockets
from gateway.bounded_answers import BYTES_MAX


async def ask(
    socket: str | Path,
    method: str,
    path: str,
    *,
    login: tuple[str, str] | None = None,
    bearer: str | None = None,
    body: object = None,
    timeout_s: float = 10.0,
) -> httpx.Response:
    """Raises httpx.HTTPError where there is no answer."""
    headers = {"Content-Type": "application/json"}
    if login is not None:
        credential = base64.b64encode(":".join(login).encode()).decode()
        headers["Authorization"] = f"Basic {credential}"
    if bearer is not None:
        headers["Authorization"] = f"Bearer {bearer}"
    content = b"" if body is None else orjson.dumps(body)
    connection = sockets.HTTPConnection(socket, timeout_s)
    try:
        return await asyncio.to_thread(_ask, connection, method, path, content, headers)
    except (OSError, http.client.HTTPException) as error:
        raise httpx.TransportError(str(error)) from error


def _ask(
    connection: sockets.HTTPConnection,
    method: str,
    path: str,
    content: bytes,
    headers: dict[str, str],
) -> httpx.Response:
    try:
        connection.request(method, path, content, headers)
        answer = connection.getresponse()
        content = answer.read(BYTES_MAX + 1)
        if len(content) > BYTES_MAX:
            raise httpx.TransportError(f"the answer is larger than {BYTES_MAX >> 20} MiB")
        return httpx.Response(answer.status, content=content)
    finally:
        connection.close()
