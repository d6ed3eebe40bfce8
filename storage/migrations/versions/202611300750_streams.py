"""Changes of what rights follow from are told to those who follow an organization's events."""

import sqlalchemy as sa
from alembic import op

from storage.columns import DatabaseClock, Timestamp

revision = "202611300750"
down_revision = "202611300740"

# By table: the column that says whose the rights are, and the columns that they follow from.
_TOLD = {
    "api_keys": ("org_id", "role, scopes, created_by, expires_at, revoked_at, suspended_at"),
    "custom_roles": ("org_id", "permissions"),
    "instances": ("org_id", "team_id, project_id"),
    "memberships": ("org_id", "role, teams_only"),
    "organizations": ("id", "status, session_max_age_s, api_key_max_age_s, role_sets, require_mfa"),
    "project_members": ("org_id", "project_id, user_id, role"),
    "role_assignments": ("org_id", "role_id, user_id, team_id, within"),
    "sessions": ("user_id", "expires_at, mfa_at, revoked_at"),
    "support_grants": ("org_id", "permissions, instance_ids, expires_at, revoked_at"),
    "team_members": ("org_id", "team_id, user_id, role"),
    "users": ("id", "is_support, totp_confirmed_at, passkeys"),
}


def upgrade() -> None:
    op.create_table(
        "right_changes",
        sa.Column("whose", sa.String(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.PrimaryKeyConstraint("whose", name=op.f("pk_right_changes")),
    )
    dialect = op.get_bind().dialect
    is_postgresql = dialect.name == "postgresql"
    if is_postgresql:
        op.execute(sa.text(_TELL))
    clock = str(DatabaseClock().compile(dialect=dialect))
    for table, (whose, columns) in _TOLD.items():
        for name, when in (("changed", f"UPDATE OF {columns}"), ("deleted", "DELETE")):
            trigger = f"CREATE TRIGGER {table}_rights_{name} AFTER {when} ON {table} FOR EACH ROW"
            if is_postgresql:
                op.execute(f"{trigger} EXECUTE FUNCTION tell_of_rights('{whose}')")
            else:
                op.execute(f"{trigger} BEGIN {_count(whose, clock)}; END")


_TELL = """
    CREATE FUNCTION tell_of_rights() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_notify('menagerie_events', to_jsonb(OLD) ->> TG_ARGV[0]);
        RETURN NULL;
    END $$
"""


def _count(whose: str, clock: str) -> str:
    return (
        f"INSERT INTO right_changes (whose, count, created_at) VALUES (OLD.{whose}, 1, {clock})"  # noqa: S608 - of constants
        " ON CONFLICT (whose) DO UPDATE SET count = count + 1"
    )


def downgrade() -> None:
    on = op.get_bind().dialect.name == "postgresql"
    for table in _TOLD:
        for name in ("changed", "deleted"):
            op.execute(f"DROP TRIGGER {table}_rights_{name}" + (f" ON {table}" if on else ""))
    if on:
        op.execute("DROP FUNCTION tell_of_rights()")
    op.drop_table("right_changes")
