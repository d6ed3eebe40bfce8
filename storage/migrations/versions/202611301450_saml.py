"""SAML assertions that have been used."""

import sqlalchemy as sa
from alembic import op

from storage.columns import Timestamp

revision = "202611301450"
down_revision = "202611301440"


def upgrade() -> None:
    op.create_table(
        "saml_assertions",
        sa.Column("connection_id", sa.String(), nullable=False),
        sa.Column("assertion_hash", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("expires_at", Timestamp(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.ForeignKeyConstraint(
            ["connection_id"],
            ["sso_connections.id"],
            name=op.f("fk_saml_assertions_connection_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["org_id"], ["organizations.id"], name=op.f("fk_saml_assertions_org_id")
        ),
        sa.PrimaryKeyConstraint("connection_id", "assertion_hash", name=op.f("pk_saml_assertions")),
    )
    op.create_index(op.f("ix_saml_assertions_expires_at"), "saml_assertions", ["expires_at"])


def downgrade() -> None:
    op.drop_table("saml_assertions")
