"""Owns the page that searches in a browser, while somebody tries the engine on their machine."""

import base64
import hashlib
import re
from functools import cache
from pathlib import Path
from typing import Final

from specserver import Reply

_PAGE: Final = Path(__file__).with_name("preview.html")
_INLINE: Final = re.compile(r"<(style|script)>(.*?)</\1>", re.DOTALL)
HTML: Final = "text/html; charset=utf-8"


@cache
def _content() -> tuple[bytes, str]:
    """The page, and the policy that allows what is in it and requests to its own address."""
    page = _PAGE.read_text()
    allowed = {
        name: base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for name, text in _INLINE.findall(page)
    }
    parts = [f"{name}-src 'sha256-{digest}'" for name, digest in allowed.items()]
    rest = "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    return page.encode(), "; ".join(["default-src 'none'", *parts, rest])


def page() -> Reply:
    body, policy = _content()
    headers = {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
    }
    return Reply(200, body, dict(headers), media_type=HTML)
