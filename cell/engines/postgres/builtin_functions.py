"""The server's own functions: compared with those of a new cluster, and brought back to them.

Only a superuser can change one. Those with numbers from 12000 on, of `information_schema`, are
left out: other builds of a version number them otherwise.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import orjson
import structlog

from cell.engines.driver import EngineError
from cell.engines.postgres.roles import Connection

log = structlog.get_logger("cell.postgres")

# Below it, the same number is the same function in each build of a version.
NUMBERED = 12_000
# All that decides what runs, and as whom; rights are compared elsewhere.
DECISIVE = {
    "proname": "name",
    "pronamespace": "oid",
    "proowner": "oid",
    "prolang": "oid",
    "prosupport": "oid",
    "prokind": '"char"',
    "prosecdef": "bool",
    "proleakproof": "bool",
    "provolatile": '"char"',
    "pronargdefaults": "int2",
    "prorettype": "oid",
    "proargtypes": "oidvector",
    "proargdefaults": "text",
    "prosrc": "text",
    "probin": "text",
    "prosqlbody": "text",
    "proconfig": "text[]",
}
RESTORED = DECISIVE | {
    "procost": "float4",
    "prorows": "float4",
    "provariadic": "oid",
    "proisstrict": "bool",
    "proretset": "bool",
    "proparallel": '"char"',
    "pronargs": "int2",
    "proallargtypes": "oid[]",
    "proargmodes": '"char"[]',
    "proargnames": "text[]",
    "protrftypes": "oid[]",
}
# Of a type that nothing is written to but what the server made itself.
TREES = ("proargdefaults", "prosqlbody")
# By its name, a function would be looked up for each row; and an array is not read as one again.
_READ = {"prosupport": "prosupport::oid"}
_WRITTEN = _READ | {"proargtypes": "proargtypes::text"}
_TOLD = ", ".join(_READ.get(name, name) for name in DECISIVE)
_KEPT = ", ".join(_WRITTEN.get(name, name) for name in RESTORED)
DIGEST = f"""SELECT md5(string_agg(ROW(oid, {_TOLD})::text, ';'))
FROM (SELECT * FROM pg_proc WHERE oid < {NUMBERED} ORDER BY oid) p"""  # noqa: S608 - our own words
FILE = "functions.json"
# In hexadecimal digits, so that nothing in it has a meaning to COPY.
WRITE = f"""COPY (SELECT encode(convert_to(json_build_object('digest', ({DIGEST}), 'rows',
(SELECT json_agg(row_to_json(p)) FROM (SELECT oid, {_KEPT} FROM pg_proc
WHERE oid < {NUMBERED}) p))::text, 'UTF8'), 'hex')) TO '{{}}'"""  # noqa: S608 - our own words
_TYPED = ", ".join(f"{name} {kind}" for name, kind in RESTORED.items())
_SET = ", ".join(
    f"{name} = r.{name}{'::pg_node_tree' if name in TREES else ''}" for name in RESTORED
)
_FORMER = ", ".join(f"p.{name}{'::text' if name in TREES else ''}" for name in RESTORED)
_WANTED = ", ".join(f"r.{name}" for name in RESTORED)
RESTORE = f"""UPDATE pg_proc p SET {_SET}
FROM json_to_recordset(%s::json) AS r (oid oid, {_TYPED})
WHERE p.oid = r.oid AND ({_FORMER}) IS DISTINCT FROM ({_WANTED})
RETURNING encode(textsend(p.proname::text), 'hex')"""  # noqa: S608 - our own words
# A role would be kept for what it owned.
DISOWN = f"""DELETE FROM pg_shdepend WHERE classid = 'pg_proc'::regclass AND objid < {NUMBERED}
AND deptype = 'o' AND dbid = (SELECT oid FROM pg_database WHERE datname = current_database())"""  # noqa: S608 - our own words
NAMED_MAX = 10


class ChangedError(EngineError):
    """What somebody changed cannot be brought back."""


@dataclass(frozen=True)
class Functions:
    """Those of a new cluster, from a file beside its template."""

    digest: str
    path: Path

    @property
    def differ(self) -> str:
        """A condition of a database."""
        return f"({DIGEST}) IS DISTINCT FROM '{self.digest}'"


@cache
def read(path: Path) -> Functions:
    return Functions(orjson.loads(path.read_bytes())["digest"], path)


async def restore(connection: Connection, database: str, wanted: Functions) -> None:
    """In the database of this connection; ChangedError where they are not the same then."""
    if await _are(connection, wanted):
        return
    rows = orjson.dumps(orjson.loads(wanted.path.read_bytes())["rows"]).decode()
    async with connection.transaction():
        # There is no way to write a tree but to have a text taken for one.
        await connection.execute("CREATE CAST (text AS pg_node_tree) WITHOUT FUNCTION")
        changed = await (await connection.execute(RESTORE.encode(), [rows])).fetchall()
        await connection.execute("DROP CAST (text AS pg_node_tree)")
        await connection.execute(DISOWN.encode())
    names = [bytes.fromhex(name).decode(errors="replace") for (name,) in changed]
    log.warning("cell.postgres.functions_restored", database=database, functions=names[:NAMED_MAX])
    if not await _are(connection, wanted):
        raise ChangedError(
            f"functions of PostgreSQL itself were changed in the database {database} by somebody "
            "who was a superuser, and cannot be restored; restore a backup from before"
        )


async def _are(connection: Connection, wanted: Functions) -> bool:
    found = await (await connection.execute(DIGEST.encode())).fetchone()
    return found == (wanted.digest,)
