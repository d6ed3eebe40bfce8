"""HTTP to an engine on its unix socket, as drivers need it: one request, one answer."""

import base64

import httpx


async def ask(
    socket: str,
    method: str,
    path: str,
    *,
    login: tuple[str, str] | None = None,
    body: object = None,
    timeout_s: float = 10.0,
) -> httpx.Response:
    """Raises httpx.HTTPError where there is no answer."""
    headers = {}
    if login is not None:
        credential = base64.b64encode(":".join(login).encode()).decode()
        headers["Authorization"] = f"Basic {credential}"
    transport = httpx.AsyncHTTPTransport(uds=socket, verify=False)
    async with transport:
        request = httpx.Request(
            method,
            f"http://engine{path}",
            headers=headers,
            json=body,
            extensions={"timeout": httpx.Timeout(timeout_s).as_dict()},
        )
        response = await transport.handle_async_request(request)
        await response.aread()
        return response
