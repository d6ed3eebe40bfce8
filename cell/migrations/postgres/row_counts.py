"""How many rows a stream of SQL has for each table, counted as it passes by."""

import re

from cell.migrations.errors import MigrationError

COPY, FROM = b"COPY ", b" FROM stdin;"
END = b"\\."
HEAD_BYTES_MAX = 256 * 1024
"""Of a line that begins a table: its name, and those of its columns."""
NAME_BYTES_MAX = 600
"""Two names of 63 bytes, each of which may be a quote that is doubled, and more."""
TABLES_MAX = 200_000
_PART = rb'(?:"(?:[^"]|"")*+"|[^\s".(]++)'
_NAME = re.compile(rb"%b(?:\.%b)*+" % (_PART, _PART))
# What stands for the rest of a line that is no such line, and no end, however long it becomes.
OTHER = b"-"


class RowCounts:
    """Of `COPY … FROM stdin` in dumps of pg_dump; rows that are inserted are not counted.

    Raises MigrationError where there are more tables than a dump has.
    """

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
        """For the next table; -1 where there is none, but maybe the beginning of its line."""
        while begin < len(content):
            if content.startswith(COPY, begin):
                end = content.find(b"\n", begin)
                if end < 0:
                    break
                if (name := _table_of(content[begin:end])) is not None:
                    self._begin(name)
                    return end + 1
            found = content.find(b"\n" + COPY, begin)
            begin = found + 1 if found >= 0 else max(begin, content.rfind(b"\n") + 1)
            if found < 0:
                break
        rest = content[begin:]
        may_begin = rest.startswith(COPY) or COPY.startswith(rest)
        self._rest = rest if may_begin and len(rest) <= HEAD_BYTES_MAX else OTHER
        return -1

    def _begin(self, name: bytes) -> None:
        self._table = name.decode(errors="replace")
        self.rows.setdefault(self._table, 0)
        if len(self.rows) > TABLES_MAX:
            raise MigrationError(f"the file has more than {TABLES_MAX} tables")

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
            rest = content[max(begin, last) :]
            self._rest = rest if END.startswith(rest) else OTHER
            return -1
        self.rows[table] += content.count(b"\n", begin, end)
        self._table = None
        return end + len(END) + 1


def _table_of(line: bytes) -> bytes | None:
    """As it stands there, without the columns, which are in parentheses."""
    if not line.endswith(FROM):
        return None
    named = line[len(COPY) : -len(FROM)]
    found = _NAME.match(named)
    if found is None or found.end() > NAME_BYTES_MAX:
        return None
    columns = named[found.end() :]
    is_list = columns.startswith(b" (") and columns.endswith(b")")
    return found[0] if is_list or not columns else None
