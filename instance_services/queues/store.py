"""What is asked of queues, over one connection to their database with PGMQ in it.

Names and ids are parameters throughout: PGMQ itself quotes the names of tables it makes of them.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import orjson
from psycopg import AsyncConnection, AsyncCursor, Rollback
from psycopg.rows import TupleRow
from psycopg.types.json import Jsonb

from instance_services.queues import names
from instance_services.queues.installation import DEFAULT_ROLES, ROLES
from specserver import Conflict, NotFound, json_sizes

Answer = dict[str, Any]
Act = Callable[[], Awaitable[Answer]]
Connection = AsyncConnection[TupleRow]
READ_BYTES_MAX: Final = 4 * 2**20
"""Of the bodies of one answer, so that what SQL put into a queue cannot fill anybody's memory."""
DEPTH_MAX: Final = 200
"""Of a message: what writes JSON stops at 254, and others put an answer into more of it."""
_SPARE: Final = 254 - DEPTH_MAX
KEPT: Final = "23 hours 55 minutes"
"""Less than the control plane keeps an answer: what it has forgotten is a new request here too."""

# Whatever SQL made of these tables and functions: the columns are of the kinds that an answer has,
# and what cannot be a queue is none.
_QUEUES: Final = """
SELECT m.name, m.unlogged, m.created_at,
    CASE WHEN a.roles IS NULL THEN %(roles)s::text[]
        ELSE ARRAY(SELECT r FROM pg_catalog.unnest(%(known)s::text[]) r WHERE r = ANY(a.roles)) END,
    greatest(x.queue_visible_length::bigint, 0), greatest(x.queue_length::bigint, 0),
    greatest(x.total_messages::bigint, 0),
    CASE WHEN x.queue_length::bigint > 0 THEN greatest(x.oldest_msg_age_sec::bigint, 0) END
FROM (
    SELECT queue_name::text AS name, coalesce(is_unlogged::boolean, false) AS unlogged,
        created_at::timestamptz AS created_at
    FROM pgmq.meta
    WHERE queue_name::text COLLATE "C" > %(after)s AND octet_length(queue_name::text) <= %(most)s
    AND isfinite(created_at::timestamptz)
    AND pg_catalog.to_regclass(
        pg_catalog.format('pgmq.%%I', 'q_' || lower(queue_name::text))) IS NOT NULL
    ORDER BY queue_name::text COLLATE "C" LIMIT %(limit)s
) m
LEFT JOIN menagerie_queues.access a ON a.queue_name::text = m.name
CROSS JOIN LATERAL (SELECT * FROM pgmq.metrics(m.name) LIMIT 1) x
ORDER BY m.name COLLATE "C" LIMIT %(limit)s
"""
NAME_BYTES_MAX: Final = 63
"""As PostgreSQL's own: what is longer names no table."""
# The bodies where all fit, for else they are asked for again; else only that they are there.
_READ: Final = """
WITH found AS MATERIALIZED (
    SELECT * FROM pgmq.read(%(name)s, %(timeout)s, %(count)s) LIMIT %(count)s
),
measured AS (
    SELECT *, sum(coalesce(octet_length(message::text), 0)) OVER (ORDER BY msg_id) <= %(most)s
        AS fits
    FROM found WHERE msg_id + read_ct IS NOT NULL AND isfinite(enqueued_at) AND isfinite(vt)
        AND msg_id > 0 AND read_ct > 0
)
SELECT msg_id::bigint, read_ct::integer, enqueued_at::timestamptz, vt::timestamptz,
    CASE WHEN bool_and(fits) OVER () THEN message::text END, fits
FROM measured ORDER BY msg_id
"""
_DELETE: Final = "SELECT d.id::bigint FROM pgmq.delete(%s, %s::bigint[]) AS d(id)"
_ARCHIVE: Final = "SELECT a.id::bigint FROM pgmq.archive(%s, %s::bigint[]) AS a(id)"
_FORGET_ONE: Final = f"""
DELETE FROM menagerie_queues.answers WHERE key = %s AND at < now() - interval '{KEPT}'
"""  # noqa: S608 - our own words
_FORGET: Final = f"""
DELETE FROM menagerie_queues.answers WHERE key IN (
    SELECT key FROM menagerie_queues.answers WHERE at < now() - interval '{KEPT}'
    ORDER BY at LIMIT 100 FOR UPDATE SKIP LOCKED
)
"""  # noqa: S608 - our own words


async def once(connection: Connection, key: str, act: Act) -> Answer:
    """What `act` answers, or what it answered when it was done with this key.

    Both are one transaction of the instance: whatever ends in between, it is done once or not.
    """
    async with connection.transaction():
        await connection.execute(_FORGET_ONE.encode(), [key])
        begun = await connection.execute(
            "INSERT INTO menagerie_queues.answers (key) VALUES (%s) ON CONFLICT DO NOTHING", [key]
        )
        if not begun.rowcount:
            return orjson_object(
                await _one(
                    connection,
                    "SELECT answer::text FROM menagerie_queues.answers WHERE key = %s LIMIT 1",
                    [key],
                )
            )
        answer = await act()
        await connection.execute(
            "UPDATE menagerie_queues.answers SET answer = %s WHERE key = %s",
            [Jsonb(answer, dumps=orjson.dumps), key],
        )
        await connection.execute(_FORGET.encode())
        return answer


async def page(connection: Connection, *, limit: int, after: str) -> Answer:
    """Queues in the order of their names, and the name the next page goes on after."""
    given = {
        "after": after,
        "limit": limit + 1,
        "most": NAME_BYTES_MAX,
        "roles": list(DEFAULT_ROLES),
        "known": list(ROLES),
    }
    rows = await (await connection.execute(_QUEUES, given)).fetchall()
    items = [_queue(row) for row in rows[:limit]]
    return {"items": items, "next_after": items[-1]["name"] if len(rows) > limit else None}


async def create(connection: Connection, name: str, *, unlogged: bool) -> Answer:
    """The queue as it is made; Conflict where there is one."""
    names.check(name)
    # Held to the end of the transaction, as PGMQ's own statements find what is there, and go on.
    await connection.execute("SELECT pgmq.acquire_queue_lock(%s)", [name])
    # One made by SQL in capitals has the same tables.
    taken = "SELECT count(*) FROM pgmq.meta WHERE lower(queue_name) = %s"
    if (await _one(connection, taken, [name]))[0]:
        raise Conflict(f"the instance already has a queue {name}", code="queue_exists")
    make = "SELECT pgmq.create_unlogged(%s)" if unlogged else "SELECT pgmq.create(%s)"
    await connection.execute(make, [name])
    if unlogged:
        await connection.execute("SELECT menagerie_queues.keep_ids(%s)", [name])
    made = "SELECT created_at::timestamptz FROM pgmq.meta WHERE queue_name = %s LIMIT 1"
    created_at = (await _one(connection, made, [name]))[0]
    return _queue((name, unlogged, created_at, DEFAULT_ROLES, 0, 0, 0, None))


async def drop(connection: Connection, name: str) -> None:
    """With its messages and its archive."""
    await require(connection, name)
    await connection.execute("SELECT pgmq.drop_queue(%s)", [name])


async def permit(connection: Connection, name: str, roles: Sequence[str]) -> Answer:
    async with connection.transaction():
        await require(connection, name)
        await connection.execute(
            "INSERT INTO menagerie_queues.access VALUES (%s, %s)"
            " ON CONFLICT (queue_name) DO UPDATE SET roles = excluded.roles",
            [name, sorted(roles)],
        )
    return {"name": name, "data_api_roles": sorted(roles)}


async def send(
    connection: Connection, name: str, messages: Sequence[Mapping[str, Any]], delay_s: int
) -> Answer:
    await require(connection, name)
    found = await connection.execute(
        "SELECT s.id::bigint FROM pgmq.send_batch(%s, %s, %s::integer) AS s(id)",
        [name, [Jsonb(each, dumps=orjson.dumps) for each in messages], delay_s],
    )
    return {"message_ids": await _ids(found)}


async def read(connection: Connection, name: str, *, count: int, timeout_s: int) -> Answer:
    """The oldest visible messages, as many as fit into an answer, hidden for `timeout_s`."""
    await require(connection, name)
    given = {"name": name, "timeout": timeout_s, "most": READ_BYTES_MAX}
    while True:
        async with connection.transaction() as transaction:
            found = await connection.execute(_READ, {**given, "count": count})
            rows = await found.fetchall()
            fitting = sum(row[5] for row in rows)
            if fitting == len(rows):
                fitting = json_sizes.fitting([(row[4] or "").encode() for row in rows])
                if fitting == len(rows):
                    return {"messages": [_message(row) for row in rows]}
                if not fitting:
                    raise _unreadable(rows[0][0], _TOO_MUCH)
            if not fitting:
                raise Conflict(
                    f"message {rows[0][0]} has more than {READ_BYTES_MAX} bytes; "
                    "read or delete it with SQL",
                    code="message_too_large",
                )
            # What does not fit must not be hidden from anybody.
            raise Rollback(transaction)
        count = fitting


async def delete(connection: Connection, name: str, ids: Sequence[int]) -> Answer:
    return await _remove(connection, _DELETE, name, ids)


async def archive(connection: Connection, name: str, ids: Sequence[int]) -> Answer:
    return await _remove(connection, _ARCHIVE, name, ids)


async def purge(connection: Connection, name: str) -> Answer:
    """Takes out every message, hidden ones too; the archive stays."""
    await require(connection, name)
    statement = "SELECT greatest(pgmq.purge_queue(%s)::bigint, 0) LIMIT 1"
    return {"purged": (await _one(connection, statement, [name]))[0]}


async def require(connection: Connection, name: str) -> None:
    """Raises NotFound for a queue that is not there."""
    there = "SELECT count(*) FROM pgmq.meta WHERE queue_name = %s"
    if not (await _one(connection, there, [name]))[0]:
        raise NotFound(f"there is no queue {name}", code="queue_not_found")


async def _remove(connection: Connection, statement: str, name: str, ids: Sequence[int]) -> Answer:
    await require(connection, name)
    found = await connection.execute(statement.encode(), [name, list(ids)])
    return {"message_ids": await _ids(found)}


async def _ids(found: AsyncCursor[TupleRow]) -> list[int]:
    return sorted(number for (number,) in await found.fetchall() if number is not None)


async def _one(connection: Connection, statement: str, given: Sequence[Any]) -> TupleRow:
    row = await (await connection.execute(statement.encode(), given)).fetchone()
    if row is None:
        raise NotFound("it no longer exists")
    return row


def _queue(row: Sequence[Any]) -> Answer:
    name, unlogged, created_at, roles, visible, length, total, oldest_s = row
    return {
        "name": name,
        "unlogged": unlogged,
        "depth": visible,
        "hidden": length - visible,
        "total_messages": total,
        "oldest_message_age_s": oldest_s,
        "data_api_roles": sorted(roles),
        "created_at": moment(created_at),
    }


def _message(row: Sequence[Any]) -> Answer:
    msg_id, read_ct, enqueued_at, visible_at, body, _ = row
    message = _parsed(msg_id, body)
    return {
        "message_id": msg_id,
        "read_count": read_ct,
        "enqueued_at": moment(enqueued_at),
        "visible_at": moment(visible_at),
        "body": message,
    }


def _parsed(msg_id: int, body: str) -> Any:
    """The message; Conflict for one that an answer cannot hold, before it is hidden from others."""
    try:
        message = orjson.loads(body)
        nested = message
        for _ in range(_SPARE):
            nested = [nested]
        orjson.dumps(nested)
    except ValueError as error:
        # PostgreSQL keeps no other JSON that cannot be read: it is too deep, or has such a number.
        deep = "depth" in str(error)
        raise _unreadable(msg_id, _TOO_DEEP if deep else _TOO_LARGE) from error
    except TypeError as error:
        raise _unreadable(msg_id, _TOO_DEEP) from error
    return message


_TOO_DEEP: Final = f"is nested more than {DEPTH_MAX} levels deep"
_TOO_MUCH: Final = (
    f"contains more than {json_sizes.CONTAINERS_MAX:,} objects and arrays, or more than"
    f" {json_sizes.SEPARATORS_MAX:,} members and items"
)
_TOO_LARGE: Final = "contains a number that is too large for JSON"


def _unreadable(msg_id: int, why: str) -> Conflict:
    told = f"message {msg_id} {why}; read or delete it with SQL"
    return Conflict(told, code="message_unreadable")


def orjson_object(row: TupleRow) -> Answer:
    """Raises Conflict for what was not answered here."""
    raw = row[0] or "null"
    found = None if json_sizes.why_too_much(raw.encode()) else orjson.loads(raw)
    if not isinstance(found, dict):
        raise Conflict(
            "the stored response to this request in menagerie_queues.answers was changed with SQL",
            code="refused_by_instance",
        )
    return found


def moment(at: datetime) -> str:
    """RFC 3339 in UTC with milliseconds."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
