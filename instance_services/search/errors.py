"""Owns the errors of the API: the documented codes and their statuses."""

from typing import Final

LINK: Final = "https://docs.meilisearch.com/errors#"
STATUSES: Final = {
    "api_key_not_found": 404,
    "batch_not_found": 404,
    "document_not_found": 404,
    "feature_not_enabled": 400,
    "immutable_api_key_actions": 400,
    "immutable_api_key_expires_at": 400,
    "immutable_api_key_indexes": 400,
    "immutable_api_key_uid": 400,
    "index_not_found": 404,
    "internal": 500,
    "invalid_api_key": 403,
    "invalid_content_type": 415,
    "method_not_allowed": 405,
    "missing_authorization_header": 401,
    "missing_content_type": 415,
    "not_found": 404,
    "payload_too_large": 413,
    "task_not_found": 404,
    "no_space_left_on_device": 422,
    "api_key_already_exists": 409,
    "too_many_search_requests": 503,
    "unavailable": 503,
}
_AUTH: Final = {"invalid_api_key", "missing_authorization_header"}


class ApiError(Exception):
    """An error with a documented code; the code decides the status."""

    def __init__(self, code: str, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.detail = message
        self.status = status or STATUSES.get(code, 400)


def described(code: str, message: str, status: int | None = None) -> dict[str, str]:
    """`{message, code, type, link}`, as answers and failed tasks have it."""
    kind = "invalid_request"
    if code in _AUTH:
        kind = "auth"
    elif code == "too_many_search_requests":
        kind = "system"
    elif (status or STATUSES.get(code, 400)) >= 500:  # noqa: PLR2004 - the server's own errors
        kind = "internal"
    return {"message": message, "code": code, "type": kind, "link": LINK + code}


def snake(name: str) -> str:
    """`attributesToCrop` as `attributes_to_crop`."""
    return "".join(f"_{each.lower()}" if each.isupper() else each for each in name).lstrip("_")
