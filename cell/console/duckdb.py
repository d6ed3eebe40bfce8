"""Running SQL on a DuckDB instance: over its HTTP, whose answer is of the last statement."""

import base64
import json
import re
from typing import Any

from cell.console.table import TOO_MUCH, Column, StatementError, Table
from cell.console.target import Target
from gateway import sockets

ANSWER_BYTES_MAX = 64_000_000
OK = 200
_NUMERIC = re.compile(r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?$|DOUBLE$|FLOAT$|DECIMAL|BIGNUM$")


def run(target: Target, sql: str, table: Table) -> None:
    """The engine interrupts a statement whose connection ends."""
    connection = sockets.HTTPConnection(target.socket)
    try:
        credential = base64.b64encode(f"{target.username}:{target.password}".encode()).decode()
        headers = {"Authorization": f"Basic {credential}", "Content-Type": "application/json"}
        connection.request("POST", "/query", json.dumps({"sql": sql}), headers)
        response = connection.getresponse()
        content = response.read(ANSWER_BYTES_MAX + 1)
    finally:
        connection.close()
    if len(content) > ANSWER_BYTES_MAX:
        raise StatementError(TOO_MUCH)
    answer = json.loads(content)
    if response.status != OK:
        raise StatementError(str(answer.get("error") or answer.get("detail") or response.reason))
    _fill(answer, table)


def _fill(answer: dict[str, Any], table: Table) -> None:
    described = zip(answer["columns"], answer["column_types"], strict=True)
    table.begin([Column(name, kind, bool(_NUMERIC.match(kind))) for name, kind in described])
    if not table.columns:
        table.changed = answer["row_count"]
        return
    for row in answer["rows"]:
        if not table.add([_text(value) for value in row]):
            break
    table.truncated = table.truncated or answer["truncated"]


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)
