"""A browser without scripts: keeps cookies as browsers do, reads forms, and sends them."""

from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlencode, urljoin, urlsplit

import httpx

from contract_tests.api.harness import House

HOST = "localhost:8080"
ADDRESS = "203.0.113.7"
FORM = "application/x-www-form-urlencoded"
_HOPS_MAX = 5


@dataclass
class SentForm:
    """A form of a page, as it stands there; `described` are its fields with their attributes."""

    action: str
    method: str
    values: dict[str, str] = field(default_factory=dict)
    described: dict[str, dict[str, str]] = field(default_factory=dict)
    button: str = ""


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.forms: list[SentForm] = []
        self.texts: dict[str, str] = {}
        self.links: dict[str, str] = {}
        self._open: list[tuple[str, dict[str, str]]] = []
        self._words: list[list[str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.forms.append(SentForm(given["action"], given.get("method", "get")))
        elif tag == "input" and self.forms:
            self.forms[-1].values[given["name"]] = given.get("value", "")
            if given.get("type") != "hidden":
                self.forms[-1].described[given["name"]] = given
        if tag not in {"input", "meta", "link", "img", "path"}:
            self._open.append((tag, given))
            self._words.append([])

    def handle_endtag(self, tag: str) -> None:
        if tag in {"path", "input"} or not self._open:
            return
        opened, given = self._open.pop()
        text = " ".join(" ".join(self._words.pop()).split())
        assert opened == tag, f"<{opened}> ends as </{tag}>"
        if self._words:
            self._words[-1].append(text)
        for name in (given.get("id"), given.get("role"), tag if tag in {"h1", "title"} else None):
            if name:
                self.texts.setdefault(name, text)
        if tag == "a":
            self.links[text] = given["href"]
        if tag == "button" and self.forms:
            self.forms[-1].button = text

    def handle_data(self, data: str) -> None:
        if self._words:
            self._words[-1].append(data)


class Page:
    """An answer, read. `texts` are by the id or role of their elements, and of `h1` and `title`."""

    def __init__(self, path: str, response: httpx.Response) -> None:
        self.path, self.response, self.status = path, response, response.status_code
        reader = _Reader()
        reader.feed(response.text)
        self.forms, self.texts, self.links = reader.forms, reader.texts, reader.links

    @property
    def title(self) -> str:
        return self.texts.get("h1", "")

    def form(self, button: str) -> SentForm:
        """The one with this button."""
        (found,) = [form for form in self.forms if form.button == button]
        return found

    def errors(self) -> dict[str, str]:
        """What is told at which field; each is what the field says describes it."""
        found = {}
        for form in self.forms:
            for name, given in form.described.items():
                if given.get("aria-invalid") == "true":
                    assert f"{name}-error" in given["aria-describedby"].split()
                    found[name] = self.texts[f"{name}-error"]
        return found


class Browser:
    """One person's, at an address. `app` is the house's, or another with the same database."""

    def __init__(
        self, house: House, *, host: str = HOST, address: str = ADDRESS, forwarded_for: str = ""
    ) -> None:
        self._house, self._host, self._address = house, host, address
        self._forwarded_for = forwarded_for
        self.secure = False
        self.cookies: dict[str, str] = {}

    def get(self, path: str, **headers: str) -> Page:
        return self._follow("GET", path, headers=headers)

    def send(self, page: Page, button: str, **typed: str) -> Page:
        form = page.form(button)
        assert form.method == "post"
        return self.post(form.action, {**form.values, **typed})

    def post(self, path: str, values: dict[str, str], **headers: str) -> Page:
        given = {
            "Content-Type": FORM,
            "Sec-Fetch-Site": "same-origin",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        return self._follow("POST", path, content=urlencode(values), headers=given)

    def as_request(self, path: str, values: dict[str, str]) -> tuple[Any, ...]:
        """For `House.together`."""
        headers = {**self._headers(), "Content-Type": FORM}
        headers["Sec-Fetch-Site"] = "same-origin"
        options = {"headers": headers, "content": urlencode(values), "address": self._address}
        return "POST", path, None, options

    def ask_as_is(
        self, method: str, path: str, values: dict[str, str], headers: dict[str, str]
    ) -> Page:
        """Without what a browser of today adds, and without following."""
        return self._ask(method, path, content=urlencode(values), headers=headers)

    def _follow(self, method: str, path: str, **options: Any) -> Page:
        page = self._ask(method, path, **options)
        for _ in range(_HOPS_MAX):
            if page.status not in {301, 302, 303, 307, 308}:
                return page
            assert page.status == 303
            target = urlsplit(
                urljoin(f"http://{self._host}{path}", page.response.headers["location"])
            )
            assert target.netloc == self._host
            path = f"{target.path}?{target.query}" if target.query else target.path
            page = self._ask("GET", path)
        raise AssertionError("it leads round in circles")

    def _ask(self, method: str, path: str, **options: Any) -> Page:
        headers = {**self._headers(), **options.pop("headers", {})}
        options |= {"headers": headers, "address": self._address}
        response = self._house.request(method, path, **options)
        for line in response.headers.get_list("set-cookie"):
            self._take(line)
        return Page(path, response)

    def _headers(self) -> dict[str, str]:
        headers = {"Host": self._host, "User-Agent": "Mozilla/5.0 (X11; Linux) Firefox/140.0"}
        if self._forwarded_for:
            headers["X-Forwarded-For"] = self._forwarded_for
        if self.cookies:
            headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        return headers

    def _take(self, line: str) -> None:
        pair, *marks = line.split("; ")
        name, _, value = pair.partition("=")
        # One alone comes with forms of other sites.
        is_for_forms = name.endswith("menagerie-sso-by-form")
        assert {"HttpOnly", "Path=/", "SameSite=Lax"} <= set(marks) or is_for_forms
        assert not [mark for mark in marks if mark.startswith("Domain")]
        assert name.startswith("__Host-") == self.secure
        assert ("Secure" in marks) == (self.secure or is_for_forms)
        assert ("SameSite=None" in marks) == is_for_forms
        if "Max-Age=0" in marks:
            self.cookies.pop(name, None)
        else:
            self.cookies[name] = value
