"""Owns how much memory the process may ask for.

The engine's own limit does not count everything: long texts, states of aggregates and what Python
holds go beyond it, and the kernel would end the process at the size's limit. The process is refused
memory before that: then a statement fails, and not the engine.
"""

import os
import resource
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_STATM = "/proc/self/statm"
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# What writes JSON doubles its buffer as it fills, and for each text makes room for eight times its
# length, should all of it be escaped.
_GROWTH = 2
_ESCAPED = 8
_SPARE_BYTES = 16 * 2**20


def limit(process_bytes: int) -> None:
    """Counted is what may be written, touched or not; what is mapped of files is not."""
    resource.setrlimit(resource.RLIMIT_DATA, (process_bytes, process_bytes))


def check_writing(rows: Iterable[Any]) -> None:
    """Raises MemoryError where rows may not fit once more, as text: what writes them would crash.

    They are measured only where all that is in use could be one text of theirs, and that too much.
    """
    limit_bytes, _ = resource.getrlimit(resource.RLIMIT_DATA)
    if limit_bytes == resource.RLIM_INFINITY:
        return
    used_bytes = _used_bytes()
    left_bytes = limit_bytes - used_bytes - _SPARE_BYTES
    if _GROWTH * (1 + _ESCAPED) * (used_bytes - _AT_FIRST_BYTES) <= left_bytes:
        return
    lengths = list(_lengths(rows))
    if _GROWTH * (sum(lengths) + _ESCAPED * max(lengths, default=0)) > left_bytes:
        raise MemoryError


def _used_bytes() -> int:
    with open(_STATM, encoding="ascii") as file:  # noqa: PTH123 - a third of the time
        return int(file.read().split()[5]) * _PAGE_BYTES


_AT_FIRST_BYTES = _used_bytes()


def _lengths(value: Any) -> Iterator[int]:
    if isinstance(value, str | bytes):
        yield len(value)
    elif isinstance(value, Mapping):
        for pair in value.items():
            yield from _lengths(pair)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _lengths(each)
    else:
        yield _ESCAPED
