"""Pages that stand alone, with their style inside: the API's front page, and what a link says."""

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, select_autoescape
from markupsafe import Markup

from pages import headers

_HERE = Path(__file__).parent
HTML = "text/html; charset=utf-8"


def front(base_url: str) -> tuple[bytes, dict[str, str]]:
    """What somebody finds who opens the API's address in a browser, and its headers."""
    return _page("front.html", title="Menagerie", base_url=base_url)


def notice(title: str, text: str, command: str = "") -> tuple[bytes, dict[str, str]]:
    """One thing that is said to somebody, and perhaps a command that helps."""
    return _page("alone.html", title=title, text=text, command=command)


def wants_page(accept: str) -> bool:
    """Browsers ask for HTML by name; what else takes anything is content with JSON."""
    return "text/html" in accept.lower()


def _page(template: str, **said: Any) -> tuple[bytes, dict[str, str]]:
    style, icon = _style(), _icon()
    # Our own two files, neither of which holds what could end the element it stands in.
    page = _templates().get_template(template).render(style=Markup(style), icon=icon, **said)  # noqa: S704
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:;"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return page.encode(), {**headers.ALWAYS, "Content-Security-Policy": policy, "Vary": "Accept"}


@cache
def _templates() -> Environment:
    return Environment(loader=FileSystemLoader(_HERE / "templates"), autoescape=select_autoescape())


@cache
def _style() -> str:
    return (_HERE / "static" / "base.css").read_text()


@cache
def _icon() -> str:
    content = base64.b64encode((_HERE / "static" / "icon.svg").read_bytes()).decode()
    return f"data:image/svg+xml;base64,{content}"
