"""Connections to identity providers, who comes by them, and sessions that began so."""

import sqlalchemy as sa
from alembic import op

from storage.columns import Json, Timestamp

revision = "202611301400"
down_revision = "202611300800"


def upgrade() -> None:
    _create_connections()
    op.create_table(
        "sso_identities",
        sa.Column("connection_id", sa.String(), nullable=False),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("last_seen_at", Timestamp(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.ForeignKeyConstraint(
            ["connection_id"],
            ["sso_connections.id"],
            name=op.f("fk_sso_identities_connection_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["org_id"], ["organizations.id"], name=op.f("fk_sso_identities_org_id")
        ),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_sso_identities_user_id")),
        sa.PrimaryKeyConstraint("connection_id", "subject", name=op.f("pk_sso_identities")),
    )
    op.create_index(
        op.f("ix_sso_identities_org_id_user_id"), "sso_identities", ["org_id", "user_id"]
    )
    op.create_index(op.f("ix_sso_identities_user_id"), "sso_identities", ["user_id"])
    _create_sign_ins()
    op.add_column("sessions", sa.Column("sso_org_id", sa.String(), nullable=True))
    op.add_column("sessions", sa.Column("sso_connection_id", sa.String(), nullable=True))
    op.create_index(op.f("ix_sessions_sso_connection_id"), "sessions", ["sso_connection_id"])


def _create_connections() -> None:
    op.create_table(
        "sso_connections",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("default_role", sa.String(), nullable=False),
        sa.Column("attribute_mapping", Json, nullable=False),
        sa.Column("settings", Json, nullable=False),
        sa.Column("secrets_sealed", sa.LargeBinary(), nullable=True),
        sa.Column("highest_role", sa.String(), nullable=False),
        sa.Column("trusts_mfa", sa.Boolean(), nullable=False),
        sa.Column("provider", Json, nullable=True),
        sa.Column("provider_read_at", Timestamp(), nullable=True),
        sa.Column("keys", Json, nullable=True),
        sa.Column("keys_tried_at", Timestamp(), nullable=True),
        sa.Column("last_used_at", Timestamp(), nullable=True),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.CheckConstraint("kind IN ('oidc', 'saml')", name=op.f("ck_sso_connections_kind")),
        sa.CheckConstraint(
            "status IN ('active', 'pending_verification', 'disabled')",
            name=op.f("ck_sso_connections_status"),
        ),
        sa.ForeignKeyConstraint(
            ["org_id"], ["organizations.id"], name=op.f("fk_sso_connections_org_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sso_connections")),
        sa.UniqueConstraint("org_id", "name", name=op.f("uq_sso_connections_org_id_name")),
    )
    op.create_index(op.f("ix_sso_connections_org_id_id"), "sso_connections", ["org_id", "id"])


def _create_sign_ins() -> None:
    op.create_table(
        "sso_sign_ins",
        sa.Column("state_hash", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("connection_id", sa.String(), nullable=False),
        sa.Column("browser_hash", sa.String(), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.Column("place", sa.String(), nullable=False),
        sa.Column("expires_at", Timestamp(), nullable=False),
        sa.Column("used_at", Timestamp(), nullable=True),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.ForeignKeyConstraint(
            ["connection_id"],
            ["sso_connections.id"],
            name=op.f("fk_sso_sign_ins_connection_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["org_id"], ["organizations.id"], name=op.f("fk_sso_sign_ins_org_id")
        ),
        sa.PrimaryKeyConstraint("state_hash", name=op.f("pk_sso_sign_ins")),
    )
    op.create_index(
        op.f("ix_sso_sign_ins_connection_id_place_created_at"),
        "sso_sign_ins",
        ["connection_id", "place", "created_at"],
    )
    op.create_index(op.f("ix_sso_sign_ins_expires_at"), "sso_sign_ins", ["expires_at"])


def downgrade() -> None:
    op.drop_index(op.f("ix_sessions_sso_connection_id"), "sessions")
    op.drop_column("sessions", "sso_connection_id")
    op.drop_column("sessions", "sso_org_id")
    op.drop_table("sso_sign_ins")
    op.drop_table("sso_identities")
    op.drop_table("sso_connections")
