"""Owns the form of an error in an answer, and the codes of what breaks the document."""

from typing import Any, Final

from instance_services.search.errors import ApiError, described, snake
from specserver import Problem, Reply

_OF_STATUS: Final = {
    401: "missing_authorization_header",
    403: "invalid_api_key",
    404: "not_found",
    405: "method_not_allowed",
    413: "payload_too_large",
    415: "invalid_content_type",
    500: "internal",
    503: "unavailable",
}

_OF_CODE: Final = {"overloaded": "too_many_search_requests"}
"""Of the server's own problems: those that Meilisearch has a code for."""


class CodedProblem(Problem):
    """An ApiError on its way to its answer."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(error.status, error.detail, code=error.code)


def render(problem: Problem, _request_id: str) -> Reply:
    code = problem.code
    if not isinstance(problem, CodedProblem):
        code = _OF_CODE.get(problem.code or "") or _OF_STATUS.get(problem.status, "bad_request")
    status = 400 if problem.status == 422 and code == "bad_request" else problem.status  # noqa: PLR2004
    body: dict[str, Any] = described(code, problem.detail, status)
    return Reply(status, body, problem.headers)


def of_violations(prefix: str, problem: Problem) -> ApiError:
    """The first violation of the document, with the code of what it is about.

    `prefix` is the beginning of the operation's codes, as `invalid_search`.
    """
    if not problem.errors:
        code = "malformed_payload" if problem.status == 400 else "bad_request"  # noqa: PLR2004
        return ApiError(code, problem.detail, problem.status)
    first = problem.errors[0]
    pointer = str(first.get("pointer") or "")
    name = str(first.get("parameter") or pointer.lstrip("/").partition("/")[0])
    if prefix == "invalid_facet_search" and not name.startswith("facet"):
        # All but the facet is a search, with the codes of one.
        prefix = "invalid_search"
    message = f"{name or 'the body'} {first['message']}"
    if first.get("keyword") in {"unevaluatedProperties", "additionalProperties", "unknown"}:
        return ApiError("bad_request", message)
    if first.get("keyword") == "required":
        if pointer.count("/") > 1 or not name:
            return ApiError("bad_request", message)
        return ApiError(prefix.replace("invalid_", "missing_", 1) + "_" + snake(name), message)
    return ApiError(f"{prefix}_{snake(name)}" if name else "bad_request", message)
