"""Owns reading an answer, within limits of size, time and depth, whatever a server sends."""

import json
import time
from collections.abc import Mapping
from typing import Any, Final

import httpx

from clients import errors

BYTES_MAX: Final = 64 << 20
WITHIN_S: Final = 60.0
"""From its head to its end. A server that sends a byte now and then would never time out."""
DEPTH_MAX: Final = 64
_AS_SENT: Final = frozenset({b"content-encoding", b"content-length", b"transfer-encoding"})


class Answered(dict[str, Any]):
    """A JSON object of an answer; a missing member raises an error that names it."""

    def __missing__(self, name: str) -> Any:
        raise errors.MalformedAnswer(f"the server's answer has no {name!r}")


def whole(
    response: httpx.Response, *, within_s: float | None = WITHIN_S, bytes_max: int = BYTES_MAX
) -> httpx.Response:
    """Answer what was begun as a stream, read to its end and closed."""
    try:
        content = b"".join(_parts(response, within_s, bytes_max))
    finally:
        response.close()
    # The content is whole by now, so headers about how it was sent no longer apply.
    kept = [pair for pair in response.headers.raw if pair[0].lower() not in _AS_SENT]
    return httpx.Response(
        response.status_code, headers=kept, content=content, request=response.request
    )


def _parts(response: httpx.Response, within_s: float | None, bytes_max: int) -> Any:
    end = None if within_s is None else time.monotonic() + within_s
    size = 0
    for part in response.iter_bytes():
        size += len(part)
        host = response.request.url.host
        if size > bytes_max:
            raise errors.MalformedAnswer(
                f"the answer of {host} is larger than {bytes_max >> 20} MiB"
            )
        if end is not None and time.monotonic() > end:
            raise errors.ConnectionFailed(f"{host} did not finish its answer within {within_s:g} s")
        yield part


def parsed(response: httpx.Response) -> Any:
    """Answer the JSON that a response carries; raise MalformedAnswer for any other."""
    try:
        value = json.loads(response.content, object_hook=Answered)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else "not JSON"
        raise errors.MalformedAnswer(f"the server's answer is {reason}") from error
    if _is_deep(value):
        raise errors.MalformedAnswer("the server's answer is nested too deeply")
    return value


def document(response: httpx.Response) -> dict[str, Any]:
    """Answer the JSON object of a failed response, or one made from its text."""
    try:
        raw = parsed(response)
    except errors.MalformedAnswer:
        raw = {"detail": response.text[:500]}
    return raw if isinstance(raw, dict) else {"detail": str(raw or "")[:500]}


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(DEPTH_MAX):
        level = [one for container in level for one in _within(container)]
        if not level:
            return False
    return True


def _within(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return list(value.values())
    return value if isinstance(value, list) else []
