"""Forms: what was typed, what the API found wrong with it, and the page that shows both."""

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from flask import Response, make_response, render_template, request

from pages.account import cookies, forgery, wording
from pages.account.api import ENVIRON, AccountApi, ApiAnswer

KEY: Final = "key"
_KEY_BYTES: Final = 16
_KEY_LENGTH: Final = 22
# What is typed is shown again, but for these.
_SECRET: Final = frozenset({"password", "current_password", "new_password", "code"})


class SignedOut(Exception):  # noqa: N818 - a state, and nobody's fault
    """The browser has no session, or one that has ended."""


class ApiRefused(Exception):  # noqa: N818 - an answer, and no error of the pages
    """The API does not do what a page needs; `answer` says why."""

    def __init__(self, answer: ApiAnswer) -> None:
        super().__init__(answer.code)
        self.answer = answer


@dataclass
class PageForm:
    """`errors` are of fields by their names, and `failure` of the whole."""

    values: dict[str, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    failure: str = ""
    code: str = ""
    status: int = 200
    retry_after: str = ""


def typed(*names: str) -> dict[str, str]:
    return {name: request.form.get(name, "") for name in names}


def call(method: str, path: str, *, body: Any = None, key: str = "") -> ApiAnswer:
    """Ask the API as the browser's session. Raises SignedOut where that has ended."""
    answer = call_as(cookies.session_token(), method, path, body=body, key=key)
    if answer.code == "unauthenticated":
        raise SignedOut
    return answer


def call_as(token: str, method: str, path: str, *, body: Any = None, key: str = "") -> ApiAnswer:
    """Ask it with this token, or as nobody where that is empty."""
    api: AccountApi = request.environ[ENVIRON]
    return api.call(method, path, token=token, body=body, key=key)


def sent_key(purpose: str = "") -> str:
    """The key of the form that was sent: sent twice, as by a double click, it acts once."""
    given = request.form.get(KEY, "")
    usable = given.isascii() and given.isprintable() and len(given) == _KEY_LENGTH
    return f"page-{given}{purpose}" if usable and " " not in given else ""


def require_me() -> dict[str, Any]:
    """Who is signed in. Raises SignedOut where nobody is."""
    if not cookies.session_token():
        raise SignedOut
    answer = call("GET", "/v1/me")
    if not answer.is_ok:
        raise ApiRefused(answer)
    return answer.body


def refused(
    answer: ApiAnswer,
    fields: Iterable[str],
    *,
    at: dict[str, str] | None = None,
    says: Mapping[str, str] | None = None,
) -> PageForm:
    """The form again. A code of `at` is told at that field, as is what has a pointer to one.

    `says` is what codes mean on this page, where that is not what they mean on others.
    """
    fields = tuple(fields)
    text = wording.of_problem(answer.body, answer.retry_after, says or {})
    form = PageForm(code=answer.code, status=answer.status, retry_after=answer.retry_after)
    form.values = {name: request.form.get(name, "") for name in fields if name not in _SECRET}
    for error in answer.body.get("errors", ()):
        name = str(error.get("pointer", "")).removeprefix("/")
        if name in fields:
            said = wording.sentence(str(error.get("message", "")))
            is_empty = not request.form.get(name, "").strip()
            form.errors.setdefault(name, wording.EMPTY.get(name, said) if is_empty else said)
    if (named := (at or {}).get(answer.code)) is not None:
        form.errors[named] = text
    if not form.errors:
        form.failure = text
    return form


def show(template: str, form: PageForm | None = None, **said: Any) -> Response:
    """A page, with the form as it is; the status is that of what was refused."""
    form = form or PageForm()
    said = {"form": form, "me": None, "proof": forgery.proof, **said}
    said["key"] = secrets.token_urlsafe(_KEY_BYTES)
    response = make_response(render_template(f"account/{template}", **said), form.status)
    if form.retry_after:
        response.headers["Retry-After"] = form.retry_after
    return response
