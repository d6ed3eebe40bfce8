"""What a cell says where it refuses: in which words, by which code, and for how long."""

from typing import Final

import httpx

from control.cells.answer_checks import Answer

ERRORS_MAX: Final = 100
_AGAIN_MAX_S: Final = 60.0


def detail(answer: httpx.Response, said: Answer) -> str:
    told = said.get("detail")
    return told if told and isinstance(told, str) else f"the cell returned {answer.status_code}"


def code(said: Answer) -> str:
    told = said.get("code")
    return told if isinstance(told, str) else ""


def errors(said: Answer) -> list[Answer]:
    told = said.get("errors")
    listed = told[:ERRORS_MAX] if isinstance(told, list) else []
    return [each for each in listed if isinstance(each, dict)]


def wait_s(answer: httpx.Response) -> float:
    """How long the cell wants to be left alone, within reason."""
    try:
        return min(_AGAIN_MAX_S, max(0.0, float(answer.headers.get("Retry-After", "1"))))
    except ValueError:
        return 1.0
