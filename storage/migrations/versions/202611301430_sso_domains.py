"""Domains whose addresses sign in by an identity provider, and logins of devices by a browser."""

import sqlalchemy as sa
from alembic import op

from storage.columns import DatabaseClock, Json, Timestamp

revision = "202611301430"
down_revision = "202611301400"

_VERIFIED = sa.text("verified_at IS NOT NULL")
# Whose the rights are, and what they follow from, as 202611300750 has it.
_ORGANIZATION = "status, session_max_age_s, api_key_max_age_s, role_sets, require_mfa"
_USER = "is_support, totp_confirmed_at, passkeys"


def upgrade() -> None:
    _create_domains()
    _create_device_logins()
    op.add_column("organizations", sa.Column("sso_enforced_domains", Json, nullable=True))
    op.add_column(
        "sessions",
        sa.Column("is_break_glass", sa.Boolean(), server_default=sa.false(), nullable=False),
    )
    _tell("organizations", f"{_ORGANIZATION}, sso_enforced_domains")
    _tell("users", f"{_USER}, email")


def _tell(table: str, columns: str) -> None:
    """Have changes of these columns told to those who follow events, and of no others."""
    dialect = op.get_bind().dialect
    is_postgresql = dialect.name == "postgresql"
    name = f"{table}_rights_changed"
    op.execute(f"DROP TRIGGER {name}" + (f" ON {table}" if is_postgresql else ""))
    clock = str(DatabaseClock().compile(dialect=dialect))
    act = (
        "EXECUTE FUNCTION tell_of_rights('id')"
        if is_postgresql
        else "BEGIN INSERT INTO right_changes (whose, count, created_at)"  # noqa: S608 - of constants
        f" VALUES (OLD.id, 1, {clock}) ON CONFLICT (whose) DO UPDATE SET count = count + 1; END"
    )
    op.execute(f"CREATE TRIGGER {name} AFTER UPDATE OF {columns} ON {table} FOR EACH ROW {act}")


def _create_domains() -> None:
    op.create_table(
        "sso_domains",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("domain", sa.String(), nullable=False),
        sa.Column("txt_value", sa.String(), nullable=False),
        sa.Column("connection_id", sa.String(), nullable=True),
        sa.Column("is_enforced", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("status_reason", sa.String(), nullable=True),
        sa.Column("checked_at", Timestamp(), nullable=True),
        sa.Column("verified_at", Timestamp(), nullable=True),
        sa.Column("missing_since", Timestamp(), nullable=True),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.CheckConstraint(
            "status IN ('pending', 'verified', 'failed')", name=op.f("ck_sso_domains_status")
        ),
        sa.ForeignKeyConstraint(
            ["org_id"], ["organizations.id"], name=op.f("fk_sso_domains_org_id")
        ),
        sa.ForeignKeyConstraint(
            ["connection_id"], ["sso_connections.id"], name=op.f("fk_sso_domains_connection_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sso_domains")),
    )
    op.create_index(
        op.f("ix_sso_domains_org_id_domain"), "sso_domains", ["org_id", "domain"], unique=True
    )
    op.create_index(
        "ix_sso_domains_verified",
        "sso_domains",
        ["domain"],
        unique=True,
        postgresql_where=_VERIFIED,
        sqlite_where=_VERIFIED,
    )
    for column in ("connection_id", "checked_at"):
        op.create_index(op.f(f"ix_sso_domains_{column}"), "sso_domains", [column])


def _create_device_logins() -> None:
    op.create_table(
        "device_logins",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("device_code_hash", sa.String(), nullable=False),
        sa.Column("user_code_hash", sa.String(), nullable=False),
        sa.Column("session_id", sa.String(), nullable=True),
        sa.Column("decision", sa.String(), nullable=True),
        sa.Column("expires_at", Timestamp(), nullable=False),
        sa.Column("user_agent", sa.String(), nullable=True),
        sa.Column("ip", sa.String(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.CheckConstraint(
            "decision IN ('approved', 'denied')", name=op.f("ck_device_logins_decision")
        ),
        sa.ForeignKeyConstraint(
            ["session_id"], ["sessions.id"], name=op.f("fk_device_logins_session_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_device_logins")),
        sa.UniqueConstraint("device_code_hash", name=op.f("uq_device_logins_device_code_hash")),
        sa.UniqueConstraint("user_code_hash", name=op.f("uq_device_logins_user_code_hash")),
    )
    for column in ("expires_at", "session_id"):
        op.create_index(op.f(f"ix_device_logins_{column}"), "device_logins", [column])


def downgrade() -> None:
    _tell("organizations", _ORGANIZATION)
    _tell("users", _USER)
    op.drop_column("sessions", "is_break_glass")
    op.drop_column("organizations", "sso_enforced_domains")
    op.drop_table("device_logins")
    op.drop_table("sso_domains")
