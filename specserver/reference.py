"""Owns the pages an app serves about itself: `/openapi.json`, an offline `/docs`, and `/`."""

import gzip
import hashlib
import html
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import orjson

from specserver.problems import MethodNotAllowed, NotFound
from specserver.replies import Reply
from specserver.requests import Headers, Scope

_STATIC = Path(__file__).with_name("static")
# Styles: the reference makes its own as it goes. Nothing else is let in, and nothing out: what
# the reference would fetch from its makers (fonts, a proxy, an assistant) has no way there.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_ASSETS = {
    "scalar.js": "text/javascript; charset=utf-8",
    "reference.js": "text/javascript; charset=utf-8",
    "reference.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
    "scalar.LICENSE.txt": "text/plain; charset=utf-8",
}
_A_YEAR = "public, max-age=31536000, immutable"
_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}: API reference</title>
<link rel="icon" href="{icon}">
<link rel="stylesheet" href="{css}">
<script src="{scalar}" defer></script>
<script src="{start}" defer></script>
</head>
<body>
<div id="reference" data-url="openapi.json"></div>
<noscript>
<p>This page needs JavaScript. The API is described at <a href="openapi.json">openapi.json</a>.</p>
</noscript>
</body>
</html>
"""


@dataclass(frozen=True)
class Content:
    """What one page is; `packed` is the same by gzip, where that is kept."""

    plain: Callable[[], bytes]
    media_type: str
    tag: str
    packed: bytes | None = None


class StaticPages:
    """An ASGI app for pages that are the same for everyone, with ETags; GET and HEAD only."""

    def __init__(self, document: dict[str, Any], *, docs: bool, front: Reply | None) -> None:
        description = orjson.dumps(document)
        self.pages: dict[str, Content] = {
            "/openapi.json": _content(description, "application/json"),
        }
        if docs:
            self.pages |= _docs(str(document["info"]["title"]))
        self._front = front

    def __contains__(self, path: str) -> bool:
        return path in self.pages or (path == "/" and self._front is not None)

    def answer(self, scope: Scope, path: str) -> Reply:
        if scope["method"] not in ("GET", "HEAD"):
            allow = {"Allow": "GET, HEAD, OPTIONS"}
            if scope["method"] == "OPTIONS":
                return Reply(204, None, allow)
            raise MethodNotAllowed(f"{scope['method']} is not allowed here", headers=allow)
        asked = Headers(scope["headers"])
        if path not in self.pages:
            return self._front_page(asked)
        content = self.pages[path]
        headers = _headers(scope, path, content)
        if content.tag in asked.get("if-none-match", ""):
            return Reply(304, None, headers)
        if content.packed is None:
            return Reply(200, content.plain(), headers, content.media_type)
        headers["Vary"] = "Accept-Encoding"
        if _takes_gzip(asked.get("accept-encoding", "")):
            headers["Content-Encoding"] = "gzip"
            return Reply(200, content.packed, headers, content.media_type)
        return Reply(200, content.plain(), headers, content.media_type)

    def _front_page(self, asked: Headers) -> Reply:
        """For people; to a program, which asks for no page by name, there is no such path."""
        if self._front is None or "text/html" not in asked.get("accept", "").lower():
            raise NotFound("no such path", code="no_such_path")
        return self._front


def _headers(scope: Scope, path: str, content: Content) -> dict[str, str | list[str]]:
    named = parse_qs(scope["query_string"].decode("latin-1")).get("v", [""])[-1]
    # A file that is asked for by its hash never changes.
    kept = _A_YEAR if named and named == content.tag.strip('"') else "no-cache"
    headers: dict[str, str | list[str]] = {"ETag": content.tag, "Cache-Control": kept}
    if path.startswith("/docs"):
        headers |= {
            "Content-Security-Policy": _POLICY,
            "Referrer-Policy": "no-referrer",
            "X-Frame-Options": "DENY",
            "Cross-Origin-Opener-Policy": "same-origin",
        }
    return headers


def _takes_gzip(accepted: str) -> bool:
    for each in accepted.lower().split(","):
        coding, _, weight = each.partition(";")
        if coding.strip() in {"gzip", "*"}:
            return weight.replace(" ", "") not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}
    return False


def _docs(title: str) -> Mapping[str, Content]:
    assets = {name: _asset(name) for name in _ASSETS}
    links = {
        name: f"docs/{file}?v={assets[file].tag.strip(chr(34))}"
        for name, file in (
            *(("icon", "icon.svg"), ("css", "reference.css")),
            *(("scalar", "scalar.js"), ("start", "reference.js")),
        )
    }
    page = _PAGE.format(title=html.escape(title), **links).encode()
    files = {f"/docs/{name}": content for name, content in assets.items()}
    return {"/docs": _content(page, "text/html; charset=utf-8"), **files}


def _content(plain: bytes, media_type: str) -> Content:
    return Content(lambda: plain, media_type, _tag(plain))


@cache
def _asset(name: str) -> Content:
    """Read once, however many apps there are; what is kept by gzip is seldom wanted otherwise."""
    packed = _STATIC / f"{name}.gz"
    if not packed.exists():
        return _content((_STATIC / name).read_bytes(), _ASSETS[name])
    content = packed.read_bytes()
    # Unpacked once, however often it is asked for: it takes 16 ms, on the event loop.
    plain = cache(lambda: gzip.decompress(content))
    return Content(plain, _ASSETS[name], _tag(content), content)


def _tag(content: bytes) -> str:
    return f'"{hashlib.sha256(content).hexdigest()[:32]}"'
