"""How many rows a stream of SQL has for each table, counted as it passes by."""

import re

_COPY = re.compile(rb"^COPY (.+?) (?:\(.*\) )?FROM stdin;$")
END = b"\\."
LINE_BYTES_MAX = 1 << 20


class RowCounts:
    """Of `COPY … FROM stdin` in dumps of pg_dump; rows that are inserted are not counted."""

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        self._table: str | None = None
        self._rest = b""

    def feed(self, block: bytes) -> None:
        """Lines may be cut anywhere."""
        content = self._rest + block
        begin = 0
        while begin < len(content):
            if self._table is None:
                begin = self._look(content, begin)
            else:
                begin = self._count(content, begin, self._table)
            if begin < 0:
                return
        self._rest = b""

    def _look(self, content: bytes, begin: int) -> int:
        """For the next table, line by line; -1 where the last line has not ended."""
        while (end := content.find(b"\n", begin)) >= 0:
            line, begin = content[begin:end], end + 1
            if line.startswith(b"COPY ") and (found := _COPY.match(line)):
                self._table = found[1].decode(errors="replace")
                self.rows.setdefault(self._table, 0)
                return begin
        # What is longer is no such line.
        rest = content[begin:]
        self._rest = rest if len(rest) <= LINE_BYTES_MAX else b"-"
        return -1

    def _count(self, content: bytes, begin: int, table: str) -> int:
        """Up to the end of the table's rows, or of what there is."""
        if content.startswith(END + b"\n", begin):
            end = begin
        elif (found := content.find(b"\n" + END + b"\n", begin)) >= 0:
            end = found + 1
        else:
            # The last line may be the end that is not all there.
            last = content.rfind(b"\n", begin) + 1
            if last > begin:
                self.rows[table] += content.count(b"\n", begin, last)
            self._rest = content[max(begin, last) :]
            return -1
        self.rows[table] += content.count(b"\n", begin, end)
        self._table = None
        return end + len(END) + 1
