"""Owns what is done to CSV before it is read: UTF-8 without a mark, or where it is not.

It also counts the rows in a way of its own, so that none is lost where the file is read otherwise
than it was meant.
"""

import codecs
import re
from collections.abc import Iterator
from typing import IO, Final

from instance_services.table_files.kinds import ROW_BYTES_MAX

BLOCK_BYTES: Final = 1 << 20
_MARKS: Final = {
    codecs.BOM_UTF8: ("UTF-8", "utf-8"),
    codecs.BOM_UTF16_LE: ("UTF-16", "utf-16-le"),
    codecs.BOM_UTF16_BE: ("UTF-16", "utf-16-be"),
}
_QUOTED: Final = re.compile('"[^"]*"')
_BLANK: Final = re.compile(r"(?<=\n)\n")


class NotTextError(Exception):
    """The file cannot be read as a text of rows; says in which line."""


class TextFile:
    """`encoding` is known once reading has begun."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.encoding = "UTF-8"
        self.rows = RowCounter()

    def blocks(self) -> Iterator[bytes]:
        """As UTF-8. Raises NotTextError."""
        head = self._file.read(BLOCK_BYTES)
        codec = "utf-8"
        for mark, (told, name) in _MARKS.items():
            if head.startswith(mark):
                self.encoding, codec, head = told, name, head[len(mark) :]
                break
        decoder = codecs.getincrementaldecoder(codec)("strict")
        lines, block = 1, head
        while True:
            try:
                text = decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                # What the decoder had kept of the block before has no newline in it.
                line = lines + error.object[: error.start].decode(codec, "replace").count("\n")
                raise NotTextError(f"line {line} has bytes that are not {self.encoding}") from error
            if (found := text.find("\0")) >= 0:
                line = lines + text.count("\n", 0, found)
                raise NotTextError(f"line {line} has a NUL character")
            if self.rows.feed(text) > ROW_BYTES_MAX:
                raise NotTextError(f"line {lines}: a row has more than {ROW_BYTES_MAX} bytes")
            lines += text.count("\n")
            if text:
                yield text.encode()
            if not block:
                return
            block = self._file.read(BLOCK_BYTES)


class RowCounter:
    """Of lines that do not end within quotes: all of them, and how many are blank."""

    def __init__(self) -> None:
        self._lines = 0
        self._blank = 0
        self._newline = ""
        self._is_inside = False
        self._last = "\n"
        self._length = 0

    def feed(self, text: str) -> int:
        """How long the row is at least that goes on from before, in characters."""
        size, outside = len(text), self._outside(text)
        if not self._newline and (found := re.search(r"[\r\n]", outside)):
            self._newline = "\n" if found[0] == "\n" or outside[found.end() :][:1] == "\n" else "\r"
        outside = outside.replace("\r", "\n" if self._newline == "\r" else "")
        if not (count := outside.count("\n")):
            self._length += size
        else:
            self._length += outside.index("\n")
        longest = self._length
        if count:
            self._length = len(outside) - outside.rindex("\n")
            self._lines += count
            self._blank += len(_BLANK.findall(self._last + outside))
        self._last = outside[-1:] or self._last
        return longest

    def _outside(self, text: str) -> str:
        """With a letter for each part that is quoted."""
        before = ""
        if self._is_inside:
            before, quote, text = "q", *text.partition('"')[1:]
            if not quote:
                return before
            self._is_inside = False
        text = _QUOTED.sub("q", text)
        text, quote, _ = text.partition('"')
        self._is_inside = bool(quote)
        return before + text + ("q" if quote else "")

    @property
    def lines(self) -> int:
        return self._lines + (self._last != "\n")

    @property
    def blank(self) -> int:
        """Which are rows of a file of one column only."""
        return self._blank
