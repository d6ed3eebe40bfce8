"""Owners' code, put aside while an upgrade restores their schema as the superuser.

To restore a schema evaluates parts of it: checks of domains, constants of any type, expressions
that the planner folds. Whatever of it would call a function of the owner calls an empty one.
"""

from cell.engines.driver import EngineError
from cell.engines.postgres import roles

# Of the bootstrap superuser are the server's own functions and those of extensions.
OURS = 10
NAMED_MAX = 5
# Functions in C and internal ones, whose languages have these numbers, are nobody's but ours.
UNTRUSTED = f"""
SELECT p.oid::regprocedure::text FROM pg_proc p JOIN pg_language l ON l.oid = prolang
WHERE proowner <> {OURS} AND NOT lanpltrusted AND NOT (prokind = 'a' AND lanname = 'internal')
"""  # noqa: S608 - our own words
# What is left of a function finds nothing, and keeps its body where no language reads it.
EMPTY = """CASE lanname WHEN 'plpgsql' THEN 'BEGIN RETURN NULL; END --'
WHEN 'sql' THEN 'SELECT NULL::' || format_type(prorettype, NULL) || ' --' ELSE ')( --' END"""
_OWNERS = f"""
FROM pg_language l WHERE l.oid = prolang AND prokind <> 'a' AND proowner <> {OURS}
AND prosqlbody IS NULL AND lanpltrusted
"""
PUT_ASIDE = f"""
UPDATE pg_proc SET prosrc =
    {EMPTY} || encode(convert_to(prosrc, getdatabaseencoding()), 'hex') {_OWNERS}
"""  # noqa: S608 - our own words
PUT_BACK = rf"""
UPDATE pg_proc SET prosrc = convert_from(
    decode(substring(prosrc FROM ' --([0-9a-f]*)$'), 'hex'), getdatabaseencoding()) {_OWNERS}
AND prosrc ~ '^(BEGIN RETURN NULL; END|SELECT NULL::.*|\)\() --[0-9a-f]*$'
"""  # noqa: S608 - our own words
# A body in the standard's form is kept parsed, and no text can stand for it. Views, triggers and
# policies are not evaluated, nor are other bodies; defaults of arguments are.
PARSED = f"""
SELECT DISTINCT p.oid::regprocedure::text FROM pg_proc p
JOIN pg_depend ON refclassid = 'pg_proc'::regclass AND refobjid = p.oid
LEFT JOIN pg_proc d ON classid = 'pg_proc'::regclass AND d.oid = objid
WHERE p.prosqlbody IS NOT NULL AND p.proowner <> {OURS} AND classid NOT IN
    ('pg_rewrite'::regclass, 'pg_trigger'::regclass, 'pg_policy'::regclass)
AND coalesce(d.pronargdefaults, 1) > 0
"""  # noqa: S608 - our own words
# The server's functions act for whoever evaluates the check. Dependencies on them are not noted.
DOMAINS = f"""
SELECT DISTINCT contypid::regtype::text FROM pg_constraint,
LATERAL regexp_matches(conbin::text, ':(opno|opfuncid|funcid) ([0-9]+)', 'g') AS used (words)
JOIN pg_proc p ON p.oid = CASE words[1] WHEN 'opno'
    THEN (SELECT oprcode::oid FROM pg_operator o WHERE o.oid = words[2]::oid)
    ELSE words[2]::oid END
WHERE contypid <> 0 AND CASE WHEN proowner <> {OURS} THEN pronargdefaults > 0
    ELSE provolatile = 'v' OR proname ~ '_to_xml'
        OR NOT has_function_privilege('{roles.OWNER}', p.oid, 'EXECUTE') END
"""  # noqa: S608 - our own words
REFUSED = (
    (UNTRUSTED, "the functions {} are in an untrusted language; drop them"),
    (
        PARSED,
        (
            "the functions {} have bodies in the SQL standard's form (BEGIN ATOMIC or RETURN) and"
            " are used in constraints, defaults, indexes, types, operators or casts; recreate them"
            " with quoted bodies (AS $$…$$)"
        ),
    ),
    (
        DOMAINS,
        (
            "the checks of the domains {} call functions that are volatile or reserved, or have"
            " defaults for arguments; drop those checks, and add them again after the upgrade"
        ),
    ),
)


async def put(connection: roles.Connection, database: str) -> None:
    """In a copy of the data. Raises EngineError where that would not be enough."""
    for query, told in REFUSED:
        names = [name for (name,) in await (await connection.execute(query.encode())).fetchall()]
        if names:
            listed = ", ".join(sorted(names)[:NAMED_MAX])
            more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
            raise EngineError(
                f"the data could not be upgraded: in the database {database}, "
                f"{told.format(listed + more)}, and try again"
            )
    await connection.execute(PUT_ASIDE.encode())


async def put_back(connection: roles.Connection) -> None:
    """In the upgraded data, once."""
    await connection.execute(PUT_BACK.encode())
