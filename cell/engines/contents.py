"""What an engine has, by which two copies of it are compared."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True)
class Contents:
    """What an engine found in its data: a digest of it, extensions in use, tables and rows.

    `lasting` is a digest of what does not go by itself with time, where something does.
    """

    digest: str
    extensions: tuple[str, ...] = ()
    tables: int = 0
    rows: int | None = None
    lasting: str | None = None

    @classmethod
    def of(
        cls,
        counted: Iterable[object],
        extensions: Iterable[str] = (),
        rows: int | None = None,
        lasting: Iterable[object] | None = None,
    ) -> Self:
        """`counted`: all there is, each with how much of it, in any order; `lasting` likewise."""
        lines = sorted(map(repr, counted))
        digest, names = _digest(lines), tuple(sorted(set(extensions)))
        stays = digest if lasting is None else _digest(sorted(map(repr, lasting)))
        return cls(digest, names, len(lines), rows, stays)


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode(errors="backslashreplace")).hexdigest()
