"""Owns the pages an app serves about itself: `/openapi.json` and an offline `/docs`."""

import hashlib
import html
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import orjson
from swagger_ui_bundle import swagger_ui_path

from specserver.problems import MethodNotAllowed
from specserver.projection import project
from specserver.replies import Reply
from specserver.requests import Headers, Scope

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_ASSETS = {
    "swagger-ui.css": "text/css; charset=utf-8",
    "swagger-ui-bundle.js": "text/javascript; charset=utf-8",
    "favicon-32x32.png": "image/png",
}
# A file of its own, since the policy lets no inline script run.
_START = """\
window.addEventListener("load", function () {
  window.ui = SwaggerUIBundle({
    url: document.querySelector("main").dataset.url,
    dom_id: "#reference",
    deepLinking: true,
    displayOperationId: true,
    filter: true,
    persistAuthorization: false,
    // The badge would send the document to a validator on the internet.
    validatorUrl: null,
  });
});
"""
_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" href="docs/favicon-32x32.png">
<link rel="stylesheet" href="docs/swagger-ui.css">
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</head>
<body>
<main id="reference" data-url="docs/openapi-3.0.json"></main>
<noscript>The description of this API is at <a href="openapi.json">openapi.json</a>.</noscript>
</body>
</html>
"""

Page = Callable[[], tuple[bytes, str]]


class Pages:
    """An ASGI app for pages that are the same for everyone, with ETags; GET and HEAD only."""

    def __init__(self, document: dict[str, Any], *, docs: bool) -> None:
        self.description = orjson.dumps(document)
        self._document = document
        self.pages: dict[str, Page] = {
            "/openapi.json": lambda: (self.description, "application/json"),
        }
        if docs:
            self.pages |= self._docs()

    def _docs(self) -> Mapping[str, Page]:
        title = html.escape(str(self._document["info"]["title"]))
        page = _PAGE.format(title=title).encode()
        pages: dict[str, Page] = {
            "/docs": lambda: (page, "text/html; charset=utf-8"),
            "/docs/start.js": lambda: (_START.encode(), "text/javascript; charset=utf-8"),
            "/docs/openapi-3.0.json": cache(self._projected),
        }
        for name, media_type in _ASSETS.items():
            pages[f"/docs/{name}"] = cache(_asset(name, media_type))
        return pages

    def _projected(self) -> tuple[bytes, str]:
        return orjson.dumps(project(self._document)), "application/json"

    def answer(self, scope: Scope, path: str) -> Reply:
        if scope["method"] not in ("GET", "HEAD"):
            allow = {"Allow": "GET, HEAD, OPTIONS"}
            if scope["method"] == "OPTIONS":
                return Reply(204, None, allow)
            raise MethodNotAllowed(f"{scope['method']} is not answered here", headers=allow)
        content, media_type = self.pages[path]()
        tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        headers: dict[str, str | list[str]] = {"ETag": tag, "Cache-Control": "no-cache"}
        if path.startswith("/docs"):
            headers |= {"Content-Security-Policy": _POLICY, "Referrer-Policy": "no-referrer"}
        if tag in Headers(scope["headers"]).get("if-none-match", ""):
            return Reply(304, None, headers)
        return Reply(200, content, headers, media_type)


def _asset(name: str, media_type: str) -> Page:
    return lambda: (Path(swagger_ui_path, name).read_bytes(), media_type)
