-- What the service keeps beside PGMQ, and the functions of the data API. Run again by each newer
-- version, so every statement may find its work done. It all belongs to the owner of the database.
CREATE SCHEMA IF NOT EXISTS menagerie_queues;
CREATE SCHEMA IF NOT EXISTS pgmq_public;

CREATE TABLE IF NOT EXISTS menagerie_queues.installed (
    version integer NOT NULL,
    pgmq_version text NOT NULL,
    at timestamptz NOT NULL DEFAULT now()
);
-- A queue without a row has the default roles, as one made by SQL.
CREATE TABLE IF NOT EXISTS menagerie_queues.access (
    queue_name varchar PRIMARY KEY REFERENCES pgmq.meta (queue_name) ON DELETE CASCADE,
    roles text[] NOT NULL
);
-- What was answered to an act, so that the same act asked again is not done again.
CREATE TABLE IF NOT EXISTS menagerie_queues.answers (
    key text PRIMARY KEY,
    answer jsonb,
    at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX IF NOT EXISTS answers_at ON menagerie_queues.answers (at);

-- After a crash an unlogged queue is empty, and its ids would begin again: those of before are in the
-- archive, which takes none twice, and with workers, who would delete a new message by an old id.
CREATE OR REPLACE FUNCTION menagerie_queues.keep_ids(queue text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    EXECUTE format('ALTER SEQUENCE pgmq.%I SET LOGGED', 'q_' || lower(queue) || '_msg_id_seq');
END $$;

-- Those that were made before this version did so.
SELECT menagerie_queues.keep_ids(m.queue_name)
FROM pgmq.meta m JOIN pg_catalog.pg_class c
ON c.relname = 'q_' || lower(m.queue_name) || '_msg_id_seq' AND c.relpersistence = 'u'
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace AND n.nspname = 'pgmq'
WHERE pg_catalog.pg_has_role(c.relowner, 'USAGE');

-- In a SECURITY DEFINER function current_user is its owner; who called is the role that was set, or
-- else who logged in. A session can only set roles it is a member of, so it cannot claim others.
CREATE OR REPLACE FUNCTION menagerie_queues.check_access(queue text) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    chosen text := current_setting('role');
    caller text := CASE WHEN chosen = 'none' THEN session_user ELSE chosen END;
    allowed text[];
BEGIN
    SELECT coalesce(a.roles, ARRAY['service_role']) INTO allowed
    FROM pgmq.meta m LEFT JOIN menagerie_queues.access a USING (queue_name)
    WHERE m.queue_name = queue;
    IF NOT FOUND OR NOT EXISTS (
        SELECT FROM pg_roles r
        WHERE (r.rolname = ANY (allowed) OR r.rolname = current_user)
        AND pg_has_role(caller, r.oid, 'USAGE')
    ) THEN
        RAISE insufficient_privilege USING MESSAGE = format('permission denied for queue %s', queue);
    END IF;
END $$;

CREATE OR REPLACE FUNCTION pgmq_public.send(
    queue_name text, message jsonb, sleep_seconds integer DEFAULT 0
) RETURNS SETOF bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM menagerie_queues.check_access($1);
    RETURN QUERY SELECT * FROM pgmq.send($1, $2, $3);
END $$;

CREATE OR REPLACE FUNCTION pgmq_public.send_batch(
    queue_name text, messages jsonb[], sleep_seconds integer DEFAULT 0
) RETURNS SETOF bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM menagerie_queues.check_access($1);
    RETURN QUERY SELECT * FROM pgmq.send_batch($1, $2, $3);
END $$;

CREATE OR REPLACE FUNCTION pgmq_public.read(queue_name text, sleep_seconds integer, n integer)
RETURNS SETOF pgmq.message_record
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM menagerie_queues.check_access($1);
    RETURN QUERY SELECT * FROM pgmq.read($1, $2, $3) AS m ORDER BY m.msg_id;
END $$;

CREATE OR REPLACE FUNCTION pgmq_public.pop(queue_name text)
RETURNS SETOF pgmq.message_record
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM menagerie_queues.check_access($1);
    RETURN QUERY SELECT * FROM pgmq.pop($1);
END $$;

CREATE OR REPLACE FUNCTION pgmq_public.archive(queue_name text, message_id bigint)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM menagerie_queues.check_access($1);
    RETURN pgmq.archive($1, $2);
END $$;

CREATE OR REPLACE FUNCTION pgmq_public.delete(queue_name text, message_id bigint)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM menagerie_queues.check_access($1);
    RETURN pgmq.delete($1, $2);
END $$;

-- Made callable by everybody, as every function is; here and not as a default, which is the owner's.
REVOKE ALL ON SCHEMA menagerie_queues, pgmq_public FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA menagerie_queues, pgmq_public FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA menagerie_queues FROM PUBLIC;
GRANT USAGE ON SCHEMA pgmq_public TO anon, authenticated, service_role;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA pgmq_public TO anon, authenticated, service_role;
