"""What is wrong with a body, as policies say it."""

from typing import TypedDict

from control.policy.sizes import GB


class Violation(TypedDict):
    """One thing wrong with a body: where (a JSON pointer), which rule, and what to do about it."""

    pointer: str
    keyword: str
    message: str


def wrong(field: str, keyword: str, message: str) -> Violation:
    """That something is wrong with a field of the body, or with all of it ('')."""
    return Violation(pointer=f"/{field}" if field else "", keyword=keyword, message=message)


def gigabytes(size_bytes: int) -> str:
    """As in: 1.50 GB."""
    whole, rest = divmod(size_bytes, GB)
    return f"{whole} GB" if not rest else f"{size_bytes / GB:.2f} GB"
