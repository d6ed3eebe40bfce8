"""Owns what the DuckDB service is held against by name; the statements are the corpus's."""

from contract_tests.attacks.statements import called


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Functions of the engine that are not offered: they reach files or memory, run SQL or read tables
# that nothing has looked at, switch on what writes elsewhere, or break the engine, as some do on
# JSON that is nested deeply.
REFUSED_FUNCTIONS = _words(
    """
    __internal_compress_integral_ubigint __internal_compress_integral_uinteger
    __internal_compress_integral_usmallint __internal_compress_integral_utinyint
    __internal_compress_string_hugeint __internal_compress_string_ubigint
    __internal_compress_string_uhugeint __internal_compress_string_uinteger
    __internal_compress_string_usmallint __internal_compress_string_utinyint
    __internal_decompress_integral_bigint __internal_decompress_integral_hugeint
    __internal_decompress_integral_integer __internal_decompress_integral_smallint
    __internal_decompress_integral_ubigint __internal_decompress_integral_uhugeint
    __internal_decompress_integral_uinteger __internal_decompress_integral_usmallint
    __internal_decompress_string
    arrow_scan arrow_scan_dumb pandas_scan python_map_function seq_scan
    query json_execute_serialized_sql json_serialize_plan
    checkpoint force_checkpoint
    enable_logging disable_logging duckdb_logs duckdb_logs_parsed duckdb_log_contexts
    truncate_duckdb_logs write_log enable_profiling disable_profiling
    glob sniff_csv read_blob read_csv read_csv_auto read_duckdb read_json read_json_auto
    read_json_objects read_json_objects_auto read_ndjson read_ndjson_auto read_ndjson_objects
    read_parquet read_text
    parquet_bloom_probe parquet_file_metadata parquet_full_metadata parquet_kv_metadata
    parquet_metadata parquet_scan parquet_schema
    variant_bytes_to_variant variant_to_parquet_variant
    from_json from_json_strict json_contains json_group_structure json_merge_patch json_structure
    json_transform json_transform_strict query_table
    """
)
REFUSED_STATEMENTS = _words(
    "ATTACH COPY COPY_DATABASE CREATE_FUNC DETACH EXECUTE EXPORT EXTENSION INVALID LOAD"
    " LOGICAL_PLAN MULTI PRAGMA PREPARE RELATION VARIABLE_SET"
)
REFUSED_PRAGMAS = _words(
    """
    add_parquet_key all_profiling_output copy_database disable_checkpoint_on_shutdown
    disable_object_cache disable_optimizer disable_print_progress_bar disable_profile
    disable_profiling disable_progress_bar disable_verification disable_verify_external
    disable_verify_fetch_row disable_verify_parallelism disable_verify_serializer
    enable_checkpoint_on_shutdown enable_object_cache enable_optimizer enable_print_progress_bar
    enable_profile enable_profiling enable_progress_bar enable_verification extension_versions
    force_checkpoint import_database json_execute_serialized_sql verify_external verify_fetch_row
    verify_parallelism verify_serializer
    """
)
# Where a call may stand: each refused function must be found in each of these.
PLACES = (
    "FROM {call}",
    "SELECT * FROM t, /* as */ {call}",
    "FROM /* as */ {call}",
    "FROM t AS recursive, {call}",
    "SELECT 1; FROM system.main.{call}",
    "INSERT INTO t FROM {call}",
    "CREATE TABLE t AS FROM /* into */ {call}",
    "CREATE VIEW v AS SELECT * FROM t JOIN {call} ON true",
    "CREATE MACRO m(x) AS TABLE FROM {call}",
    "CREATE MACRO m(x) AS {call}",
    "UPDATE t SET i = (SELECT count(*) FROM {call})",
    "DELETE FROM t WHERE i IN (FROM {call})",
    "EXPLAIN ANALYZE FROM {call}",
    "PIVOT (FROM {call}) ON x USING sum(y)",
    "SET VARIABLE x = (FROM {call})",
    "WITH a AS MATERIALIZED (FROM {call}) FROM a",
    "SELECT {call} OVER ()",
    "SELECT [{call} FOR x IN y]",
    "DESCRIBE FROM {call}",
    "CALL {call}",
)
CALLS = (
    "FROM query('SELECT 1')",
    "FROM \"query\"('SELECT 1')",
    "FROM \"QUERY\" ('SELECT 1')",
    "FROM query -- (\n('SELECT 1')",
    "SELECT * FROM t, query /* */ ('SELECT 1')",
    "FROM(query('SELECT 1'))",
    "WITH query AS (SELECT 1) FROM query('SELECT 1')",
    f"FROM{' ' * 1000}query('SELECT 1')",
    "FROM query\u00a0('SELECT 1')",
    "INSERT INTO t FROM query\u00a0('SELECT 1')",
    "INSERT INTO t FROM /* into */ query\u2003('SELECT 1')",
    "INSERT INTO t FROM $\u00ab$ ' $\u00ab$, query('SELECT 1') --'",
    "SELECT 1 AS recursive FROM t recursive, query('SELECT 1')",
    "CREATE TABLE t (i INTEGER DEFAULT (write_log('x')))",
    "CREATE INDEX i ON t ((write_log(x)))",
    "INSERT INTO t SELECT 'a;b', query($$x$$)",
    "SELECT x.write_log()",
)
NO_CALLS = (
    "WITH query(n) AS (SELECT 1) FROM query",
    "SELECT * FROM t AS query(a, b)",
    "SELECT query FROM query WHERE query = (SELECT max(query) FROM query)",
    "CREATE TABLE query (query INTEGER)",
    "CREATE TABLE IF NOT EXISTS main.query (query INTEGER)",
    "CREATE TABLE t (i INTEGER, FOREIGN KEY (i) REFERENCES query (query))",
    "CREATE UNIQUE INDEX i ON query (query)",
    "CREATE OR REPLACE VIEW query(query) AS SELECT 1",
    "INSERT INTO query(n) VALUES (1)",
    'INSERT INTO database.main."query" (n) SELECT current_query()',
    "INSERT INTO t VALUES ('FROM query(1)') -- read_csv(",
    "SELECT 'FROM query(1)', $$read_text('x')$$ /* glob('x') */",
    "SELECT x GLOB '*' FROM range(3) t(x)",
    "PRAGMA table_info('t'); PRAGMA show_tables",
    "SELECT 'pragma enable_profiling'",
)
# Files where a table should stand, and what only looks like that.
PATHS = (
    "FROM 'x.csv'",
    'SELECT * FROM "/data/x.duckdb"',
    'FROM "/data/x"."duckdb"',
    "FROM e'/data/x\\x2educkdb'",
    "FROM '/data/x.duck'\n'db'",
    "FROM $$x.parquet$$",
    "SUMMARIZE 'x.json.gz'",
    "SELECT 1; WITH a AS (FROM 'x.tsv') FROM a",
    "INSERT INTO t FROM /* */ 'x.csv'",
    "CREATE MACRO m() AS TABLE FROM 'x.csv'",
    "PIVOT 'x.csv' ON a",
    "EXPLAIN FROM 'x.csv'",
)
NO_PATHS = (
    "SELECT 'x.csv' AS \"y.csv\" FROM t WHERE a IN ('x.csv', 'y.csv')",
    "INSERT INTO t VALUES ('x.csv', 'y.json')",
    "UPDATE t SET a = 'x.csv' WHERE a IS DISTINCT FROM 'y.csv'",
    "SELECT t.json, e'\\n' FROM main.json AS t",
    'SELECT * FROM "kept.csv"',
)
STORED = """
CREATE TABLE query (i INTEGER);
CREATE VIEW kept_view AS FROM query;
CREATE MACRO kept_macro(x) AS x + 1;
CREATE VIEW a AS FROM query('SELECT 1');
CREATE MACRO "b " "c"(x) AS TABLE FROM query(x);
CREATE MACRO d(x) AS (SELECT count(*) FROM query(x));
CREATE SCHEMA s;
CREATE MACRO s.e(x) AS TABLE FROM query(x);
""".replace('"b " "c"', '"b ""c"')
WHAT_IS_STORED = """
SELECT function_name FROM duckdb_functions() WHERE NOT internal
UNION ALL SELECT view_name FROM duckdb_views() WHERE NOT internal
ORDER BY 1
"""
# Statements that hear no interrupt for many seconds: each works through one value or one chunk.
UNHEEDING = called("duckdb", "unheeding")
# Heard within a second or so.
HEEDING = called("duckdb", "heeding")
# Each asks for more memory than the smallest size has; `t` is a table of 490 MB in texts.
FILL = """
CREATE TABLE t AS SELECT i, md5(i::VARCHAR) || md5((i + 1)::VARCHAR) AS s
FROM range(3800000) r(i)
"""
HOGS = called("duckdb", "hogs")
# These are worked through by spilling.
LARGE = (
    "SELECT * FROM t ORDER BY s DESC LIMIT 5 OFFSET 3000000",
    "SELECT s FROM t ORDER BY hash(s)",
    "SELECT count(DISTINCT s) FROM t",
)
