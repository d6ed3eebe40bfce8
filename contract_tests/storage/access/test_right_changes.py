"""What rights follow from tells of its changes: no table and no column is left out."""

from sqlalchemy import text

from control.boundary import callers
from storage import tenancy
from storage.access import right_changes
from storage.database import Database
from storage.records import Record

# What changes where nobody's right becomes less, or nobody's who is let in by this credential.
QUIET = {
    "api_keys": {
        *("id", "org_id", "name", "created_by_key_id", "service_account_id", "created_at"),
        *("workload_identity_id", "prefix", "token_hash", "last_used_at", "suspended_reason"),
    },
    "custom_roles": {"id", "org_id", "name", "created_by", "created_at"},
    "memberships": {"org_id", "user_id", "created_at"},
    "organizations": {
        *("id", "name", "slug", "default_region", "plan", "allowed_email_domains"),
        *("closed_at", "created_at", "alert_emails", "alerts_mailed_at"),
        *("critical_alerts_mailed_at", "spending_cap_cents", "spending_cap_on_reach"),
    },
    "project_members": {"id", "org_id", "created_at"},
    "role_assignments": {"id", "org_id", "created_by", "created_at"},
    "scim_group_members": {"org_id", "created_at"},
    "scim_groups": {
        *("id", "org_id", "display_name", "name_key", "external_id", "is_pushed", "version"),
        *("updated_at", "created_at"),
    },
    "sso_group_claims": {"org_id", "created_at"},
    "sessions": {
        *("id", "user_id", "token_hash", "prefix", "last_used_at", "user_agent", "ip"),
        *("created_at", "sso_org_id", "sso_connection_id", "is_break_glass"),
    },
    "support_grants": {"id", "org_id", "reason", "created_by", "created_at"},
    "team_members": {"org_id", "created_at"},
    "users": {
        *("id", "name", "password_hash", "totp_secret_sealed", "totp_last_step"),
        *("email_verified_at", "created_at"),
    },
}
ALONE = {"api_keys", "custom_roles", "organizations", "scim_groups", "sessions", "users"}
"""Nobody can have had rights by a row of these before it was there."""
PLACES = {"team_id", "project_id"}
"""Of instances: who sees their events."""
GRANTED = {
    *("memberships", "project_members", "role_assignments", "support_grants", "team_members"),
    *("scim_group_members", "sso_group_claims"),
}
"""A further row of these gives rights to somebody who may follow already."""
TOLD = {
    "sqlite": "SELECT tbl_name, sql FROM sqlite_master WHERE type = 'trigger' AND name LIKE :name",
    "postgresql": (
        "SELECT event_object_table, pg_get_triggerdef(t.oid) FROM information_schema.triggers i"
        " JOIN pg_trigger t ON t.tgname = i.trigger_name WHERE trigger_name LIKE :name"
    ),
}


def told(database: Database) -> tuple[dict[str, set[str]], set[str]]:
    """The columns whose change is told, by table; of tables that tell of deletions as well.

    And the tables of which a further row is told.
    """
    found: dict[str, set[str]] = {}
    deleted, inserted = set(), set()
    with database.engine.connect() as connection:
        rows = connection.execute(text(TOLD[database.dialect]), {"name": "%_rights_%"})
        for table, sql in rows:
            columns = sql.partition("UPDATE OF ")[2].partition(" ON ")[0]
            if columns:
                found[table] = {each.strip() for each in columns.split(",")}
            elif "AFTER DELETE ON" in sql:
                deleted.add(table)
            elif "AFTER INSERT ON" in sql:
                inserted.add(table)
    return {table: columns for table, columns in found.items() if table in deleted}, inserted


def test_every_column_of_what_a_credential_comes_to_is_told_or_quiet(database: Database) -> None:
    asked = {
        table
        for query in (callers._KEYS, callers._SESSIONS)
        for table in tenancy.tables(query.load._query)
    }
    found, granted = told(database)
    assert asked == set(QUIET), "decide which columns of a new table rights follow from"
    assert granted == GRANTED <= asked, "decide whether a further row gives rights"
    assert asked - granted == ALONE
    assert set(found) == {*asked, "instances"}
    for table in asked:
        columns = {column.name for column in Record.metadata.tables[table].columns}
        assert found[table].isdisjoint(QUIET[table]), table
        assert found[table] | QUIET[table] == columns, f"{table}: told of, or quiet?"
    assert found["instances"] == PLACES


def test_changes_are_counted_where_nobody_can_be_told(database: Database) -> None:
    with database.write() as db:
        for name in ("a", "b"):
            db.execute(
                text("INSERT INTO users (id, email, name, created_at) VALUES (:id, :id, '', :at)"),
                {"id": name, "at": 0 if database.dialect == "sqlite" else "2030-01-01"},
            )
    with database.write() as db:
        db.execute(text("UPDATE users SET name = 'A' WHERE id = 'a'"))
        db.execute(text("UPDATE users SET is_support = true WHERE id = 'a'"))
        db.execute(text("DELETE FROM users WHERE id = 'a'"))
    with database.read() as db:
        counted = right_changes.counts(db, ["a", "b"])
    assert counted == ({"a": 2} if database.dialect == "sqlite" else {})
