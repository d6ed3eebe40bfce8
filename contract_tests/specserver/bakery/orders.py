"""Owns handlers that answer with what they were given, for the tests of binding."""

from typing import Any


def filter_(filter_: dict[str, Any] | None, box: dict[str, Any] | None, ids: list[int]) -> Any:
    return {"filter": filter_, "box": box, "ids": ids}


def sign(body: Any) -> Any:
    return body


def note(body: Any) -> Any:
    return {"body": body if isinstance(body, str) else body.decode("latin-1")}


def basket(**everything: Any) -> Any:
    return everything
