"""Owns problems: the errors a request can end in, and their RFC 9457 form."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, TypeAlias

from specserver.replies import Reply

MEDIA_TYPE = "application/problem+json"

# One row per status we expect to meet: the title a person reads and the code a program matches.
# Our own table, because the phrases of the standard library change between Python versions.
_NAMES = {
    400: ("Bad request", "bad_request"),
    401: ("Unauthenticated", "unauthenticated"),
    402: ("Payment required", "payment_required"),
    403: ("Forbidden", "forbidden"),
    404: ("Not found", "not_found"),
    405: ("Method not allowed", "method_not_allowed"),
    406: ("Not acceptable", "not_acceptable"),
    408: ("Request timeout", "request_timeout"),
    409: ("Conflict", "conflict"),
    410: ("Gone", "gone"),
    412: ("Precondition failed", "precondition_failed"),
    413: ("Content too large", "content_too_large"),
    414: ("URI too long", "uri_too_long"),
    415: ("Unsupported media type", "unsupported_media_type"),
    422: ("Invalid request", "invalid_request"),
    428: ("Precondition required", "precondition_required"),
    429: ("Too many requests", "too_many_requests"),
    431: ("Header fields too large", "header_fields_too_large"),
    500: ("Internal error", "internal_error"),
    501: ("Not implemented", "not_implemented"),
    502: ("Bad gateway", "bad_gateway"),
    503: ("Unavailable", "unavailable"),
    504: ("Gateway timeout", "gateway_timeout"),
}
_INITIALS = {word: word.upper() for word in ("api", "json", "mfa")}
_RESERVED = frozenset({"type", "title", "status", "detail", "code", "request_id", "errors"})


class Problem(Exception):  # noqa: N818 - a problem is the domain's word (RFC 9457)
    """An answer other than success. `members` become further members of the JSON document.

    `errors` is a list of `{"pointer" | "parameter": …, "keyword": …, "message": …}`.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        code: str | None = None,
        title: str | None = None,
        errors: Iterable[Mapping[str, Any]] = (),
        headers: Mapping[str, str] | None = None,
        **members: Any,
    ) -> None:
        super().__init__(detail)
        if taken := _RESERVED & members.keys():
            raise ValueError(f"a problem has its own {', '.join(sorted(taken))}")
        known_title, known_code = _NAMES.get(status, (f"Status {status}", f"status_{status}"))
        self.status = status
        self.detail = detail
        self.code = code or known_code
        self.title = title or (known_title if code is None else _title(code))
        self.errors = [dict(error) for error in errors]
        self.headers = dict(headers or {})
        self.members = members

    def document(self, request_id: str, type_prefix: str) -> dict[str, Any]:
        document = {
            "type": type_prefix + self.code,
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
            "request_id": request_id,
        }
        if self.errors:
            document["errors"] = self.errors
        return document | self.members


def _title(code: str) -> str:
    first, *words = re.split(r"[_-]+", code)
    return " ".join(
        [_INITIALS.get(first, first.capitalize()), *(_INITIALS.get(w, w) for w in words)]
    )


class _StatusProblem(Problem):
    STATUS: ClassVar[int]
    DETAIL: ClassVar[str]

    def __init__(
        self,
        detail: str | None = None,
        *,
        code: str | None = None,
        title: str | None = None,
        errors: Iterable[Mapping[str, Any]] = (),
        headers: Mapping[str, str] | None = None,
        **members: Any,
    ) -> None:
        super().__init__(
            self.STATUS,
            self.DETAIL if detail is None else detail,
            code=code,
            title=title,
            errors=errors,
            headers=headers,
            **members,
        )


class BadRequest(_StatusProblem):
    STATUS, DETAIL = 400, "the request is malformed"


class Unauthenticated(_StatusProblem):
    """Carries `WWW-Authenticate`, which RFC 9110 wants on every 401."""

    STATUS, DETAIL = 401, "a valid credential is needed"

    def __init__(
        self, detail: str | None = None, *, headers: Mapping[str, str] | None = None, **rest: Any
    ) -> None:
        given = dict(headers or {})
        if not any(name.lower() == "www-authenticate" for name in given):
            given["WWW-Authenticate"] = "Bearer"
        super().__init__(detail, headers=given, **rest)


class PaymentRequired(_StatusProblem):
    STATUS, DETAIL = 402, "the plan does not allow this"


class Forbidden(_StatusProblem):
    STATUS, DETAIL = 403, "you are not allowed to do this"


class NotFound(_StatusProblem):
    STATUS, DETAIL = 404, "not found"


class MethodNotAllowed(_StatusProblem):
    STATUS, DETAIL = 405, "this method is not allowed here"


class NotAcceptable(_StatusProblem):
    STATUS, DETAIL = 406, "none of the accepted media types is available"


class Conflict(_StatusProblem):
    STATUS, DETAIL = 409, "the request conflicts with the current state"


class Gone(_StatusProblem):
    STATUS, DETAIL = 410, "this is gone"


class TooLarge(_StatusProblem):
    STATUS, DETAIL = 413, "the body is too large"


class UnsupportedMediaType(_StatusProblem):
    STATUS, DETAIL = 415, "this media type is not supported here"


class Invalid(_StatusProblem):
    STATUS, DETAIL = 422, "the request is invalid"


class TooManyRequests(_StatusProblem):
    STATUS, DETAIL = 429, "too many requests"


class InternalError(_StatusProblem):
    STATUS, DETAIL = 500, "internal error; quote the request id when you report it"


class Unavailable(_StatusProblem):
    STATUS, DETAIL = 503, "temporarily unavailable"


class PollAgain(Exception):  # noqa: N818 - an instruction to the runtime and not an error
    """Asks the runtime to run the boundary again after `after_s` seconds, holding no thread."""

    def __init__(self, after_s: float) -> None:
        super().__init__(f"again in {after_s} s")
        self.after_s = after_s


RenderProblem: TypeAlias = Callable[[Problem, str], Reply]


def render_problem(
    problem: Problem, request_id: str, *, type_prefix: str = "urn:problem:"
) -> Reply:
    return Reply(
        problem.status,
        problem.document(request_id, type_prefix),
        problem.headers,
        MEDIA_TYPE,
    )
