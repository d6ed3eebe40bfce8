"""Questions that find what only a superuser can have made, in the database of a connection."""

import functools

from cell.engines.postgres.builtin_functions import Functions
from cell.engines.postgres.extensions import Called

# Objects with lower numbers are of a new cluster.
FIRST = 16384
# The administrator works in them, and owners can make nothing there.
NAMES = ("postgres", "template0", "template1")
OURS = f"{NAMES}"
# Created by owners before it was found to be unsafe to create; unlike that, its use is safe.
FORMERLY = "earthdistance"
# Whatever they are a part of, nobody may make them but a superuser.
CLASSES = (
    *(("pg_event_trigger", "true"), ("pg_language", "true"), ("pg_am", "true")),
    *(("pg_ts_parser", "true"), ("pg_ts_template", "true"), ("pg_foreign_data_wrapper", "true")),
    # Of the server's own relations, and of its own types.
    *(("pg_trigger", f"o.tgrelid < {FIRST}"), ("pg_rewrite", f"o.ev_class < {FIRST}")),
    (
        "pg_cast",
        """NOT EXISTS (SELECT FROM pg_type t WHERE t.typowner <> 10
        AND t.oid IN (o.castsource, o.casttarget))""",
    ),
    # They call addresses, except what the server makes for each aggregate and range.
    (
        "pg_proc",
        """o.prokind <> 'a' AND EXISTS (SELECT FROM pg_language l WHERE l.oid = o.prolang
        AND NOT lanpltrusted
        AND NOT (lanname = 'internal' AND o.prosrc ~ '^(multi)?range_constructor[0-3]$'))""",
    ),
    ("pg_publication", "o.pubowner = 10"),
)
# With the columns of the owner and, where there is one, of the schema.
OWNED = (
    *(("pg_proc", "proowner", "pronamespace"), ("pg_class", "relowner", "relnamespace")),
    *(("pg_type", "typowner", "typnamespace"), ("pg_namespace", "nspowner", "oid")),
    *(("pg_operator", "oprowner", "oprnamespace"), ("pg_opclass", "opcowner", "opcnamespace")),
    *(("pg_opfamily", "opfowner", "opfnamespace"), ("pg_collation", "collowner", "collnamespace")),
    *(("pg_conversion", "conowner", "connamespace"), ("pg_ts_dict", "dictowner", "dictnamespace")),
    *(("pg_ts_config", "cfgowner", "cfgnamespace"), ("pg_largeobject_metadata", "lomowner", "oid")),
    ("pg_statistic_ext", "stxowner", "stxnamespace"),
)
# Parts of something else, which follow it, and temporary schemas, which the server makes.
PARTS = {
    "pg_class": "o.relkind NOT IN ('i', 'I', 't', 'c') AND NOT EXISTS (SELECT FROM pg_depend d"
    " WHERE d.classid = 'pg_class'::regclass AND d.objid = o.oid AND d.deptype IN ('a', 'i')"
    " AND d.refclassid = 'pg_class'::regclass AND o.relkind = 'S')",
    "pg_type": "o.typtype <> 'm' AND (o.typrelid = 0 OR EXISTS"
    " (SELECT FROM pg_class c WHERE c.oid = o.typrelid AND c.relkind = 'c'))"
    " AND NOT EXISTS (SELECT FROM pg_type e WHERE e.typarray = o.oid)",
    "pg_namespace": "o.nspname !~ '^pg_(toast_)?temp_'",
    "pg_proc": "o.prosrc !~ '^(multi)?range_constructor[0-3]$'",
}
MEMBERS = """
SELECT e.extname FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
WHERE d.deptype = 'e' AND d.refclassid = 'pg_extension'::regclass
"""
# Schemas of an extension, in which it makes what it needs (TimescaleDB).
SCHEMAS = "SELECT objid FROM pg_depend WHERE deptype = 'e' AND classid = 'pg_namespace'::regclass"
# No script of those that owners create makes functions that run as the superuser.
DEFINERS = "o.prosecdef AND o.proowner = 10 AND n.extname NOT LIKE 'timescaledb%'"
EXTENSIONS = f"""
SELECT 'pg_extension'::regclass, o.oid, 'DROP' FROM pg_extension o
WHERE oid >= {FIRST} AND extname <> '{FORMERLY}' AND extname NOT LIKE 'timescaledb%'
AND extname = ANY (ARRAY(SELECT v.name FROM pg_available_extension_versions v
    GROUP BY v.name HAVING NOT bool_or(v.trusted OR NOT v.superuser)))
"""  # noqa: S608 - our own words
# A migration of ours has one, in a database of its own, that works with an owner's rights only.
SUBSCRIPTIONS = """
SELECT 'pg_subscription'::regclass, s.oid, 'DROP' FROM pg_subscription s
JOIN pg_database d ON d.oid = s.subdbid JOIN pg_roles r ON r.oid = s.subowner
WHERE d.datname = current_database() AND (r.rolsuper
    OR d.datname !~ '^migration_[0-9a-z]{26}$' OR s.subname <> 'menagerie_' || right(d.datname, 26))
"""
TOLD = "encode(textsend(i.type || ' ' || i.identity), 'hex')"
# What keeps roles from being dropped for the sake of rights on the server's own objects.
GRANTS = f"""
SELECT ctid AS place FROM pg_shdepend WHERE deptype = 'a' AND objid < {FIRST}
AND dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
AND classid IN ('pg_proc'::regclass, 'pg_class'::regclass, 'pg_language'::regclass)
"""  # noqa: S608 - our own words
# What the server's own objects let whom do, as in a new cluster; owners cannot change it.
RIGHTS = (
    ("pg_proc", "proacl", "o.pronamespace = 'pg_catalog'::regnamespace", "oid", "0"),
    ("pg_class", "relacl", "o.relnamespace = 'pg_catalog'::regnamespace", "oid", "0"),
    ("pg_attribute", "attacl", "o.attnum <> 0", "attrelid", "attnum"),
    ("pg_language", "lanacl", "true", "oid", "0"),
    ("pg_namespace", "nspacl", "o.nspname = 'pg_catalog'", "oid", "0"),
)
# Unlike in a new cluster, these are nobody's: one record of the log may be as large as what they
# are given, and to recover takes twice its size. They count as such from the beginning, so that
# they are watched with the other rights, and dumps do not mention them.
DENIED = "SELECT oid FROM pg_proc WHERE proname = 'pg_logical_emit_message' AND pronamespace = 11"
_NOBODYS = "ARRAY[makeaclitem(10, 10, 'EXECUTE', false)]"
_DENIED_YET = f"""SELECT FROM pg_init_privs p WHERE p.classoid = 'pg_proc'::regclass
    AND p.objoid = d.oid AND p.initprivs = {_NOBODYS}"""
GRANTED = f"SELECT FROM ({DENIED}) d WHERE NOT EXISTS ({_DENIED_YET})"
DENY = (
    f"DELETE FROM pg_init_privs WHERE classoid = 'pg_proc'::regclass AND objoid IN ({DENIED})",  # noqa: S608 - our own words
    f"""INSERT INTO pg_init_privs (objoid, classoid, objsubid, privtype, initprivs)
    SELECT d.oid, 'pg_proc'::regclass, 0, 'i', {_NOBODYS} FROM ({DENIED}) d""",  # noqa: S608 - our own words
    f"UPDATE pg_proc SET proacl = {_NOBODYS} WHERE oid IN ({DENIED})",  # noqa: S608 - our own words
)


@functools.cache
def anything(called: Called, functions: Functions, *, ours: bool) -> bytes:
    """One question instead of thirty: of most databases the answer is that there is nothing."""
    found = [
        "SELECT FROM pg_default_acl WHERE defaclrole = 10",
        GRANTED,
        *(_differing(*each) for each in RIGHTS),
        f"SELECT FROM ({GRANTS}) AS g",
        *everything(called, ours=ours),
    ]
    asked = [*(f"EXISTS ({each})" for each in found), functions.differ]
    return f"SELECT {' OR '.join(asked)}".encode()


def everything(called: Called, *, ours: bool) -> list[str]:
    """Each finds the catalog, the object in it, and what is to be done with it."""
    found = [_reserved(*each) for each in CLASSES]
    servers = f"""SELECT 'pg_foreign_server'::regclass, o.oid, 'CASCADE' FROM pg_foreign_server o
        WHERE NOT EXISTS ({MEMBERS} AND d.classid = 'pg_foreign_data_wrapper'::regclass
            AND d.objid = o.srvfdw AND e.extname LIKE 'timescaledb%')"""  # noqa: S608 - our own
    found += [servers, SUBSCRIPTIONS, EXTENSIONS, _added(called)]
    found += [_owned(*each, ours=ours) for each in OWNED]
    return found


def _added(called: Called) -> str:
    """Functions that are part of an extension and call what its script does not."""
    known = ", ".join(f"('{name}', '{each}')" for name, each in (*called, ("", "")))
    of_it = f"SELECT FROM (VALUES {known}) AS v (name, called) WHERE v.name = e.extname"
    return f"""SELECT 'pg_proc'::regclass, o.oid, 'DROP' FROM pg_proc o
        JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = o.oid
            AND d.deptype = 'e' AND d.refclassid = 'pg_extension'::regclass
        JOIN pg_extension e ON e.oid = d.refobjid
        JOIN pg_language l ON l.oid = o.prolang
        WHERE o.oid >= {FIRST} AND o.prokind <> 'a' AND e.extname NOT LIKE 'timescaledb%'
        AND (l.lanname = 'c' AND EXISTS ({of_it} AND v.called LIKE '$libdir/%')
                AND NOT EXISTS ({of_it} AND v.called = o.probin)
            OR l.lanname = 'internal' AND EXISTS ({of_it})
                AND o.prosrc !~ '^(multi)?range_constructor[0-3]$'
                AND NOT EXISTS ({of_it} AND v.called = o.prosrc))
    """  # noqa: S608 - names in files of ours


def _reserved(catalogue: str, condition: str) -> str:
    action = "CASCADE" if catalogue == "pg_foreign_data_wrapper" else "DROP"
    return f"""SELECT '{catalogue}'::regclass, o.oid, '{action}' FROM {catalogue} o
        WHERE o.oid >= {FIRST} AND ({condition})
        AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = '{catalogue}'::regclass
            AND d.objid = o.oid AND d.deptype IN ('e', 'i')
            AND d.refclassid <> 'pg_class'::regclass)
    """  # noqa: S608 - our own words


def _owned(catalogue: str, owner: str, schema: str, *, ours: bool) -> str:
    action = "CASCADE" if ours and catalogue != "pg_largeobject_metadata" else "OWNER"
    member = f"{MEMBERS} AND d.classid = '{catalogue}'::regclass AND d.objid = o.oid"
    definers = ""
    if catalogue == "pg_proc":
        definers = f"OR EXISTS (SELECT FROM ({member}) n WHERE {DEFINERS})"
    # Who makes a large object gives it its number.
    first = 0 if catalogue == "pg_largeobject_metadata" else FIRST
    named = catalogue.removesuffix("_metadata")
    return f"""SELECT '{named}'::regclass, o.oid, '{action}' FROM {catalogue} o
        WHERE o.oid >= {first} AND o.{owner} = 10 AND {PARTS.get(catalogue, "true")}
        AND (NOT EXISTS ({member}) AND o.{schema} NOT IN ({SCHEMAS}) {definers})
    """  # noqa: S608 - our own words


def named(query: str) -> bytes:
    return f"""SELECT f.c::oid, f.o, f.a, {TOLD} FROM ({query}) AS f (c, o, a),
        pg_identify_object(f.c, f.o, 0) AS i""".encode()  # noqa: S608 - our own words


def _differing(catalogue: str, rights: str, condition: str, oid: str, part: str) -> str:
    """Most rows have no rights and never had, and are not looked up one by one."""
    joined = f"""p.classoid = '{"pg_class" if part != "0" else catalogue}'::regclass
        AND p.objoid = o.{oid} AND p.objsubid = {part if part == "0" else f"o.{part}"}"""
    return f"""SELECT o.ctid AS place, i.initprivs FROM {catalogue} o
        LEFT JOIN LATERAL (SELECT p.initprivs FROM pg_init_privs p
            WHERE {joined} OFFSET 0) i ON true
        WHERE o.{oid} < {FIRST} AND {condition} AND o.{rights} IS NOT NULL
        AND o.{rights} IS DISTINCT FROM i.initprivs
        UNION ALL SELECT o.ctid, p.initprivs FROM pg_init_privs p JOIN {catalogue} o ON {joined}
        WHERE o.{oid} < {FIRST} AND {condition} AND o.{rights} IS NULL"""  # noqa: S608


def restored(catalogue: str, rights: str, condition: str, oid: str, part: str) -> str:
    found = _differing(catalogue, rights, condition, oid, part)
    return f"""UPDATE {catalogue} c SET {rights} = f.initprivs FROM ({found}) f
        WHERE c.ctid = f.place"""  # noqa: S608
