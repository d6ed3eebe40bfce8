"""Errors as SCIM has them (RFC 7644, 3.12): of what the rest of the service says in its own way."""

from typing import Any, Final

from specserver import Conflict, Problem, Reply
from storage.errors import StateConflict

MEDIA_TYPE: Final = "application/scim+json"
SCHEMA: Final = "urn:ietf:params:scim:api:messages:2.0:Error"
# What the protocol has no status for: what is wrong with a request is 400, and a plan forbids.
_STATUSES: Final = {402: 403, 422: 400, 406: 406}
_SCIM_TYPES: Final = {"malformed_json": "invalidSyntax", "conflict": "uniqueness"}


def render(problem: Problem, request_id: str) -> Reply:
    """In place of a problem document."""
    status, scim_type = status_of(problem)
    body: dict[str, Any] = {
        "schemas": [SCHEMA],
        "status": str(status),
        "detail": f"{detail_of(problem)} (request {request_id})",
    }
    if scim_type is not None:
        body["scimType"] = scim_type
    return Reply(status, body, problem.headers, MEDIA_TYPE)


def status_of(problem: Problem) -> tuple[int, str | None]:
    """The status of the response, and the `scimType`."""
    status = _STATUSES.get(problem.status, problem.status)
    known = _SCIM_TYPES.get(problem.code)
    if known == "uniqueness" and status != Conflict.STATUS:
        known = None
    return status, known or ("invalidValue" if problem.status == 422 else None)  # noqa: PLR2004


def detail_of(problem: Problem) -> str:
    """With what is wrong in which place."""
    wrong = [
        f"{each.get('pointer') or each.get('parameter') or ''} {each['message']}".strip()
        for each in problem.errors
    ]
    return ": ".join([problem.detail, "; ".join(wrong)]) if wrong else problem.detail


def of_conflict(error: StateConflict) -> Problem:
    return Conflict(error.detail)
