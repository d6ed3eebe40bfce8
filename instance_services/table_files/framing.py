"""Owns how what is unpacked is passed on: a line of JSON says what comes, then blocks of it.

A block is its length in decimal digits, a newline, and its bytes; one of no bytes is the last.
"""

import sys
from typing import Any

import orjson

from instance_services.table_files.kinds import FRAME_BYTES_MAX


def say(document: dict[str, Any]) -> None:
    sys.stdout.buffer.write(orjson.dumps(document) + b"\n")


def pass_on(block: bytes) -> None:
    """In blocks of at most FRAME_BYTES_MAX; none of them is the last."""
    view = memoryview(block)
    while view:
        part, view = view[:FRAME_BYTES_MAX], view[FRAME_BYTES_MAX:]
        sys.stdout.buffer.write(b"%d\n" % len(part))
        sys.stdout.buffer.write(part)


def end() -> None:
    sys.stdout.buffer.write(b"0\n")


def flush() -> None:
    sys.stdout.buffer.flush()
