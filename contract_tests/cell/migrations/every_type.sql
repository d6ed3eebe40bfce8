CREATE SCHEMA "odd schema";
CREATE EXTENSION hstore;
CREATE EXTENSION citext;
CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
CREATE TYPE pair AS (a int, b text);
CREATE TYPE span AS RANGE (subtype = float8);
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE COLLATION german (locale = 'C');
CREATE SEQUENCE tickets START 1000 INCREMENT 2;
SELECT setval('tickets', 1040);
CREATE FUNCTION area(w int, h int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT w * h';
CREATE FUNCTION told() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.told_at := '2026-01-31';
    RETURN NEW;
END $$;
CREATE TABLE everything (
    id bigint GENERATED ALWAYS AS IDENTITY (START 7) PRIMARY KEY,
    serial serial,
    w int DEFAULT 3,
    h int DEFAULT area(2, 2),
    whole int GENERATED ALWAYS AS (w * h) STORED,
    a smallint, b bigint, c numeric, d numeric(12, 3), e real, f double precision,
    g text COLLATE german, i varchar(20), j char(7), k bytea, l boolean,
    m date, n time, o timetz, p timestamp, q timestamptz, r interval,
    s uuid, t json, u jsonb, x inet, y cidr, z macaddr, aa macaddr8,
    ab point, ac line, ad lseg, ae box, af path, ag polygon, ah circle,
    ai bit(5), aj varbit, ak tsvector, al tsquery, am money, an oid, ao regclass,
    ap int4range, aq int8multirange, ar span, at mood, au mood[], av pair, aw positive,
    ax int[][], ay text[], az hstore, ba citext, bb "char", bc name, bd jsonpath,
    told_at date, "quoted ""name" text
);
INSERT INTO everything (a, b, c, d, e, f, g, i, j, k, l, m, n, o, p, q, r, s, t, u, x, y, z, aa,
    ab, ac, ad, ae, af, ag, ah, ai, aj, ak, al, am, an, ao, ap, aq, ar, at, au, av, aw, ax, ay, az,
    ba, bb, bc, bd, "quoted ""name")
VALUES (-32768, 9223372036854775807, 'NaN', 123456789.125, 'Infinity', 0.1, E'tab\t\\ \n ''ü', '\.',
    'x', '\x00ff5c', true, '4714-11-24 BC', '24:00', '12:00+05:30', 'infinity',
    '294276-12-31 23:59:59.999999+00', '-178000000 years 3 mons', gen_random_uuid(), '{"a": [1 ]}',
    '{"b": null}', '::1', '10.0.0.0/8', '08:00:2b:01:02:03', '08:00:2b:01:02:03:04:05',
    '(1,2)', '{1,2,3}', '[(0,0),(1,1)]', '((0,0),(1,1))', '[(0,0),(1,1)]', '((0,0),(1,1),(2,0))',
    '<(1,2),3>', '10101', '1', 'a:1 b:2', 'a & b', '12.34', 4242, 'everything', '[1,5)',
    '{[1,2),[5,9)}', '[0.1,0.2]', 'ok', '{sad,happy}', '(1,"a,b")', 5, '{{1,2},{3,4}}',
    '{"NULL",NULL,"a,b"}', 'k=>v', 'CiText', 'c', 'name', '$.a[*]', E'\r\n');
INSERT INTO everything (w) SELECT n FROM generate_series(1, 50) n;
CREATE TABLE measurements (at date NOT NULL, place text, value float8) PARTITION BY RANGE (at);
CREATE TABLE measurements_2025 PARTITION OF measurements FOR VALUES FROM ('2025-01-01') TO ('2026-01-01');
CREATE TABLE measurements_2026 PARTITION OF measurements
    FOR VALUES FROM ('2026-01-01') TO ('2027-01-01') PARTITION BY HASH (place);
CREATE TABLE measurements_2026_0 PARTITION OF measurements_2026 FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE measurements_2026_1 PARTITION OF measurements_2026 FOR VALUES WITH (MODULUS 2, REMAINDER 1);
CREATE INDEX ON measurements (place, at);
INSERT INTO measurements SELECT date '2025-07-01' + n % 365, 'p' || n, n / 7.0
    FROM generate_series(1, 1000) n;
CREATE TABLE parents (n int PRIMARY KEY);
CREATE TABLE children (extra text) INHERITS (parents);
INSERT INTO parents VALUES (1);
INSERT INTO children VALUES (2, 'child');
CREATE TABLE "odd schema"."Odd; table" ("select" int PRIMARY KEY, "a b" text UNIQUE);
INSERT INTO "odd schema"."Odd; table" SELECT n, n::text FROM generate_series(1, 100) n;
CREATE TABLE references_it (
    n int REFERENCES "odd schema"."Odd; table" ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
    EXCLUDE USING gist (during WITH &&), during tstzrange
);
INSERT INTO references_it SELECT n FROM generate_series(1, 10) n;
CREATE UNLOGGED TABLE carts (n int PRIMARY KEY, items jsonb);
INSERT INTO carts SELECT n, '[]' FROM generate_series(1, 5) n;
CREATE TABLE no_columns ();
INSERT INTO no_columns DEFAULT VALUES;
CREATE TABLE renewed (gone int, stays int);
ALTER TABLE renewed DROP COLUMN gone;
INSERT INTO renewed VALUES (1), (NULL);
CREATE INDEX partial ON everything (lower(g)) WHERE w > 10;
CREATE STATISTICS of_both ON w, h FROM everything;
CREATE TRIGGER tells BEFORE INSERT OR UPDATE ON everything FOR EACH ROW EXECUTE FUNCTION told();
CREATE RULE quiet AS ON DELETE TO parents DO INSTEAD NOTHING;
CREATE VIEW small AS SELECT id, w FROM everything WHERE w < 10 WITH CHECK OPTION;
CREATE MATERIALIZED VIEW totals AS SELECT count(*) FROM measurements;
CREATE MATERIALIZED VIEW of_totals AS SELECT * FROM totals;
CREATE MATERIALIZED VIEW empty AS SELECT * FROM totals WITH NO DATA;
CREATE UNIQUE INDEX ON totals (count);
ALTER TABLE carts ENABLE ROW LEVEL SECURITY;
CREATE POLICY all_of_them ON carts FOR SELECT USING (n > 0);
CREATE AGGREGATE product (int) (SFUNC = int4mul, STYPE = int, INITCOND = '1');
CREATE OPERATOR === (LEFTARG = int, RIGHTARG = int, FUNCTION = int4eq);
CREATE CAST (pair AS text) WITH INOUT;
CREATE TEXT SEARCH CONFIGURATION mine (COPY = english);
CREATE PROCEDURE proceeds() LANGUAGE sql AS 'SELECT 1';
COMMENT ON TABLE everything IS 'it''s all here';
SELECT lo_from_bytea(4242, decode(repeat('00ff', 5000), 'hex'));
