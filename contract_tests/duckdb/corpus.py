"""Owns hostile statements against the DuckDB service, as data."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Functions of the engine that are not offered: they reach files or memory, run SQL that nothing
# has looked at, switch on what writes elsewhere, or break the engine.
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
    "INSERT INTO query(n) VALUES (1)",
    'INSERT INTO database.main."query" (n) SELECT current_query()',
    "INSERT INTO t VALUES ('FROM query(1)') -- read_csv(",
    "SELECT 'FROM query(1)', $$read_text('x')$$ /* glob('x') */",
    "SELECT x GLOB '*' FROM range(3) t(x)",
    "PRAGMA table_info('t'); PRAGMA show_tables",
    "SELECT 'pragma enable_profiling'",
)
# Statements beside functions: the engine is set to write elsewhere, or broken.
STATEMENTS = (
    "CHECKPOINT system",
    'CHECKPOINT "System"',
    "FORCE CHECKPOINT /* database */ system",
    "CHECKPOINT temp",
    "FROM checkpoint('system')",
    "FROM force_checkpoint('system')",
    "FROM /* recursive */ force_checkpoint('system')",
    "SELECT count(*) FROM /* as */ query('SELECT 1')",
    "FROM enable_profiling(format='json', save_location='{new}')",
    "FROM /* x */ system.main.enable_profiling()",
    "PRAGMA enable_profiling",
    "PRAGMA enable_profile",
    "PRAGMA \"enable_profiling\" = 'json'",
    "SET enable_profiling = 'json'",
    "SET profiling_output = '{new}'",
    "RESET profiling_output",
    "PRAGMA import_database('{folder}')",
    "PRAGMA json_execute_serialized_sql('x')",
    "ALTER DATABASE database SET ALIAS TO other",
    "USE system",
    "USE temp",
    "SET schema = 'system'",
    "SET search_path = 'pg_catalog'",
    "SELECT json_serialize_plan('FROM arrow_scan(1::POINTER, 1::POINTER, 1::POINTER)')",
    "FROM duckdb_logs()",
    "SELECT write_log('x')",
    "LOAD json",
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
UNHEEDING = (
    "SELECT len(range(TIMESTAMP '1900-01-01', TIMESTAMP '2100-01-01', INTERVAL 1 MICROSECOND))",
    "SELECT len(generate_series(TIMESTAMP '1900-01-01', now()::TIMESTAMP, INTERVAL 1 MICROSECOND))",
    "SELECT length(bitstring('1', 2000000000))",
    "SELECT length(lpad('x', 2000000000, 'y'))",
    "SELECT length(rpad('x', 2000000000, 'y'))",
    "SELECT levenshtein(repeat('a', 300000), repeat('b', 300000))",
    "SELECT length(regexp_extract_all(repeat('a', 100000000), 'a'))",
    "SELECT regexp_replace(repeat('a', 100000000), 'a', 'bb', 'g')",
    "SELECT length(repeat('9', 10000000)::BIGNUM::VARCHAR)",
    "SELECT (repeat('9', 3000000)::BIGNUM * repeat('9', 3000000)::BIGNUM)::VARCHAR",
    "SELECT list_reduce(range(100000000), lambda x, y: x + y)",
    "SELECT sha256(repeat('a', 1000000000))",
    "SELECT url_encode(repeat('é', 200000000))",
)
# Heard within a second or so.
HEEDING = (
    "SELECT count(*) FROM range(TIMESTAMP '1900-01-01', now()::TIMESTAMP, INTERVAL 1 MICROSECOND)",
    "WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r) SELECT max(i) FROM r",
    "SELECT count(*) FROM range(1000000000) a, range(1000000000) b",
    "SELECT max(s) FROM (SELECT sum(i) OVER (ORDER BY i) s FROM range(100000000) t(i))",
    "SELECT sleep_ms(600000)",
    "SELECT count(*) FROM repeat(1, 1000000000000)",
)
# Each asks for more memory than the smallest size has; `t` is a table of 490 MB in texts.
FILL = """
CREATE TABLE t AS SELECT i, md5(i::VARCHAR) || md5((i + 1)::VARCHAR) AS s
FROM range(3800000) r(i)
"""
HOGS = (
    "SELECT list(s) FROM t",
    "SELECT length(string_agg(s, ',')) FROM t",
    "SELECT length(repeat('x', 300000000))",
    "SELECT repeat('x', 200000000)",
    "SELECT repeat('x', 100000000) FROM range(100)",
    "SELECT range(30000000)",
    "SELECT list_sort(range(20000000))[1]",
    "SELECT quantile_disc(s, 0.5) FROM t",
    "SELECT format('{:>1000000000}', 'x')",
    "SELECT len(array_agg(range(1000))) FROM range(1000000)",
    "SELECT md5(string_agg(repeat('y', 100000), '')) FROM range(10000)",
)
# These are worked through by spilling.
LARGE = (
    "SELECT * FROM t ORDER BY s DESC LIMIT 5 OFFSET 3000000",
    "SELECT s FROM t ORDER BY hash(s)",
    "SELECT count(DISTINCT s) FROM t",
)
