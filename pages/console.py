"""The SQL console: one page for one instance, asked by its own script and by nobody else."""

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from typing import Any, Protocol

import orjson
from flask import (
    Flask,
    Response,
    abort,
    g,
    jsonify,
    make_response,
    redirect,
    render_template,
    request,
)
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import HTTPException

from pages import headers

COOKIE = "__Secure-console"
# What leads nowhere is said back to nobody, and stands in no header.
INSTANCE_ID = re.compile(r"inst_[0-9A-Za-z]{1,40}")
STATEMENT_BYTES_MAX = 200_000
NONCE_BYTES = 16
TITLES = {
    401: "This session has ended",
    403: "This request was refused",
    404: "Page not found",
}
TEXTS = {
    401: "A session ends after 30 minutes without a statement, after 8 hours, or when the"
    " credential of its instance is rotated. Get a new link: menagerie console open NAME",
    403: "This request did not come from the console page. Reload the page.",
}
ASK_AGAIN = "menagerie console open NAME"
LINK_TITLES = {
    "used": "This link has already been used",
    "expired": "This link has expired",
    "rotated": "This link is no longer valid",
    "bad_token": "This link is not valid",
    "not_found": "Instance not found",
}
LINK_TEXTS = {
    "used": "A link to the SQL console works only once. Get a new one:",
    "expired": "A link to the SQL console is valid for one minute. Get a new one:",
    "bad_token": "It was not issued for the SQL console, or part of it is missing. Get a new one:",
    "not_found": "It was deleted, or it is not in this cell. To open another instance:",
}


@dataclass(frozen=True)
class About:
    """What the page says of its instance."""

    name: str
    engine: str
    version: str
    host: str


@dataclass(frozen=True)
class ConsoleCaller:
    """Somebody's request. `secret` is the cookie's and may be anything.

    `address` is the one they come from, empty where nobody knows it.
    """

    instance_id: str
    secret: str
    address: str


class Refused(Exception):  # noqa: N818 - an answer, and nobody's fault
    """What was asked is not done; the text says why, to whoever asked."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class ConsoleBackend(Protocol):
    """Whoever has sessions and runs statements. Each method may raise Refused."""

    def about(self, caller: ConsoleCaller) -> About | None:
        """None where the session is not one of this instance, or has ended."""

    def run(self, caller: ConsoleCaller, sql: str) -> dict[str, Any]:
        """A table, or `error`."""

    def tables(self, caller: ConsoleCaller) -> dict[str, Any]:
        """`schemas` with their tables and columns, or `error`."""

    def stop(self, caller: ConsoleCaller) -> None: ...

    def sign_out(self, caller: ConsoleCaller) -> None: ...


def make_app(backend: ConsoleBackend) -> Flask:
    app = Flask("pages", static_folder="static", template_folder="templates")
    # Werkzeug would send whoever writes a path in another way to the host that they named.
    app.url_map.merge_slashes = False
    app.url_map.strict_slashes = False
    # The worker counts its characters as they are, and an escape is up to three times as long.
    app.json.ensure_ascii = False  # type: ignore[attr-defined]
    app.config["MAX_CONTENT_LENGTH"] = 8 * STATEMENT_BYTES_MAX
    app.before_request(_check_path)
    app.after_request(headers.add)
    app.register_error_handler(HTTPException, _failed)
    app.register_error_handler(Refused, _refused)
    console = _Console(backend)
    app.add_url_rule("/<instance_id>/", view_func=console.page)
    for view in (console.run, console.tables, console.stop, console.end):
        verb = view.__name__
        app.add_url_rule(f"/<instance_id>/{verb}", verb, view, methods=["POST"])
    return app


class _Console:
    def __init__(self, backend: ConsoleBackend) -> None:
        self._backend = backend

    def page(self, instance_id: str) -> ResponseReturnValue:
        if not request.path.endswith("/"):
            return redirect(f"{request.script_root}/{instance_id}/", 308)
        about = self._backend.about(_caller(instance_id))
        if about is None:
            if _is_from_elsewhere():
                # A browser keeps a strict cookie to itself on the way from another site. The page
                # itself asks once more, and is then asked by its own site.
                return render_template("arriving.html")
            abort(401)
        g.nonce = secrets.token_urlsafe(NONCE_BYTES)
        about_page = {"about": about, "instance_id": instance_id, "nonce": g.nonce}
        return render_template("console.html", proof=_proof(_secret()), **about_page)

    def run(self, instance_id: str) -> ResponseReturnValue:
        self._check(instance_id)
        body = _json(request.get_data())
        sql = body.get("sql") if isinstance(body, dict) else None
        if not isinstance(sql, str) or not sql.strip():
            return _refusal(400, "Enter a statement to run.")
        if len(sql.encode(errors="replace")) > STATEMENT_BYTES_MAX:
            return _refusal(413, f"A statement can have at most {STATEMENT_BYTES_MAX:,} bytes.")
        return jsonify(self._backend.run(_caller(instance_id), sql))

    def tables(self, instance_id: str) -> ResponseReturnValue:
        self._check(instance_id)
        return jsonify(self._backend.tables(_caller(instance_id)))

    def stop(self, instance_id: str) -> ResponseReturnValue:
        self._check(instance_id)
        self._backend.stop(_caller(instance_id))
        return "", 204

    def end(self, instance_id: str) -> ResponseReturnValue:
        self._check(instance_id)
        self._backend.sign_out(_caller(instance_id))
        said = {"title": "Signed out", "text": "You can close this page."}
        response = make_response(render_template("notice.html", **said))
        path = f"{request.script_root}/{instance_id}/"
        response.delete_cookie(COOKIE, path, secure=True, httponly=True, samesite="Strict")
        return response

    def _check(self, instance_id: str) -> None:
        """Of a request that does something: by a page of ours, and within a session."""
        g.is_script = request.endpoint != "end"
        given = request.headers.get("X-Console-Proof") or request.form.get("proof", "")
        if not hmac.compare_digest(given.encode(), _proof(_secret()).encode()):
            abort(403 if _secret() else 401)
        if request.headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
            abort(403)
        if self._backend.about(_caller(instance_id)) is None:
            abort(401)


def _check_path() -> None:
    instance_id = (request.view_args or {}).get("instance_id")
    if instance_id is not None and not INSTANCE_ID.fullmatch(instance_id):
        abort(404)


def _json(text: bytes) -> Any:
    """None for what is not JSON; nor is text that UTF-8 cannot hold, or that nests without end."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def link_notice(code: str, detail: str) -> tuple[str, str, str]:
    """Title, text and command of the page that a one-time URL answers instead of the console."""
    title = LINK_TITLES.get(code, "The console cannot be opened")
    otherwise = f"{detail[:1].upper()}{detail[1:]}. Then get a new link:"
    return title, LINK_TEXTS.get(code, otherwise), ASK_AGAIN


def _caller(instance_id: str) -> ConsoleCaller:
    return ConsoleCaller(instance_id, _secret(), request.remote_addr or "")


def _secret() -> str:
    return request.cookies.get(COOKIE, "")


def _proof(secret: str) -> str:
    """That a request comes from the page: another site has neither the cookie nor the page."""
    return hmac.new(secret.encode(errors="replace"), b"console page", hashlib.sha256).hexdigest()


def _is_from_elsewhere() -> bool:
    return request.headers.get("Sec-Fetch-Site") == "cross-site"


def _refusal(status: int, text: str) -> tuple[Response, int]:
    return jsonify({"error": text}), status


def _failed(error: HTTPException) -> ResponseReturnValue:
    status = error.code or 500
    text = TEXTS.get(status) or error.description or "The request failed."
    response = make_response(_notice(status, error.name, text))
    if error.response is None:
        for name, value in error.get_headers():
            if name == "Allow":
                response.headers[name] = value
    return response


def _refused(refused: Refused) -> ResponseReturnValue:
    return _notice(refused.status, "The request was refused", str(refused))


def _notice(status: int, name: str, text: str) -> ResponseReturnValue:
    """To the page's script, or to somebody who looks at a page."""
    if g.get("is_script"):
        return _refusal(status, text)
    title = TITLES.get(status, name)
    return render_template("notice.html", title=title, text=text), status
