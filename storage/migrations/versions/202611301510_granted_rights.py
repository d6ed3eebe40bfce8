"""Those who follow events are told also of what is granted, not only of what is taken away."""

import sqlalchemy as sa
from alembic import op

from storage.columns import DatabaseClock

revision = "202611301510"
down_revision = "202611301500"

_GRANTED = (
    *("memberships", "project_members", "role_assignments", "support_grants", "team_members"),
    *("scim_group_members", "sso_group_claims"),
)


def upgrade() -> None:
    dialect = op.get_bind().dialect
    if dialect.name == "postgresql":
        op.execute(sa.text(_tell("COALESCE(OLD, NEW)")))
    clock = str(DatabaseClock().compile(dialect=dialect))
    for table in _GRANTED:
        trigger = f"CREATE TRIGGER {table}_rights_added AFTER INSERT ON {table} FOR EACH ROW"
        if dialect.name == "postgresql":
            op.execute(f"{trigger} EXECUTE FUNCTION tell_of_rights('org_id')")
        else:
            op.execute(f"{trigger} BEGIN {_count(clock)}; END")


def _count(clock: str) -> str:
    return (
        f"INSERT INTO right_changes (whose, count, created_at) VALUES (NEW.org_id, 1, {clock})"  # noqa: S608 - of constants
        " ON CONFLICT (whose) DO UPDATE SET count = count + 1"
    )


def _tell(row: str) -> str:
    return f"""
        CREATE OR REPLACE FUNCTION tell_of_rights() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            PERFORM pg_notify('menagerie_events', to_jsonb({row}) ->> TG_ARGV[0]);
            RETURN NULL;
        END $$
    """


def downgrade() -> None:
    on_postgresql = op.get_bind().dialect.name == "postgresql"
    for table in _GRANTED:
        op.execute(f"DROP TRIGGER {table}_rights_added" + (f" ON {table}" if on_postgresql else ""))
    if on_postgresql:
        op.execute(sa.text(_tell("OLD")))
