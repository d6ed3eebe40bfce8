"""What a database holds, as the console lists it: schemas, tables and columns, asked of the engine.

Asked as any other statement is, by the same login, so that nobody is shown more than they may see.
"""

from typing import Any, Final

from cell.console.table import RunLimits

COLUMNS_MAX: Final = 5_000
LIMITS: Final = RunLimits(seconds=10.0, rows=COLUMNS_MAX, bytes=3_000_000)

_POSTGRES = """
SELECT n.nspname, c.relname,
  CASE c.relkind WHEN 'v' THEN 'view' WHEN 'm' THEN 'view' ELSE 'table' END,
  a.attname, format_type(a.atttypid, a.atttypmod)
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_attribute a
  ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relkind IN ('r', 'v', 'm', 'f', 'p') AND NOT c.relispartition
  AND n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\\_%'
  AND has_schema_privilege(n.oid, 'USAGE')
ORDER BY n.nspname <> 'public', n.nspname, c.relname, a.attnum
"""
_MYSQL = """
SELECT c.table_schema, c.table_name, CASE t.table_type WHEN 'VIEW' THEN 'view' ELSE 'table' END,
  c.column_name, c.column_type
FROM information_schema.columns c
JOIN information_schema.tables t
  ON t.table_schema = c.table_schema AND t.table_name = c.table_name
WHERE c.table_schema NOT IN ('information_schema', 'performance_schema', 'mysql', 'sys')
ORDER BY c.table_schema <> 'app', c.table_schema, c.table_name, c.ordinal_position
"""
# With names that an owner's own views and macros cannot take.
_DUCKDB = """
SELECT c.table_schema, c.table_name, CASE t.table_type WHEN 'VIEW' THEN 'view' ELSE 'table' END,
  c.column_name, c.data_type
FROM system.information_schema.columns c
JOIN system.information_schema.tables t
  ON t.table_catalog = c.table_catalog AND t.table_schema = c.table_schema
  AND t.table_name = c.table_name
WHERE c.table_catalog = system.main.current_database()
  AND c.table_schema NOT IN ('information_schema', 'pg_catalog')
ORDER BY c.table_schema <> 'main', c.table_schema, c.table_name, c.ordinal_position
"""
# By the driver's protocol, as the dialects are.
STATEMENTS: Final = {"postgres": _POSTGRES, "mysql": _MYSQL, "https": _DUCKDB}
# Names there need no schema before them.
USUAL_SCHEMAS: Final = {"postgres": "public", "mysql": "app", "https": "main"}


def listed(answer: dict[str, Any], protocol: str) -> dict[str, Any]:
    """The tree of an answer to a statement above, or its `error`."""
    if "error" in answer:
        return {"error": answer["error"]}
    schemas: dict[str, dict[str, dict[str, Any]]] = {}
    for schema, name, kind, column, column_type in answer["rows"]:
        tables = schemas.setdefault(schema, {})
        table = tables.setdefault(name, {"name": name, "kind": kind, "columns": []})
        if column is not None:
            table["columns"].append({"name": column, "type": column_type})
    return {
        "usual": USUAL_SCHEMAS[protocol],
        "schemas": [{"name": name, "tables": [*of.values()]} for name, of in schemas.items()],
        "truncated": answer["truncated"],
    }
