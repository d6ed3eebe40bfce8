"""Invites: who may join an organization, known by the hash of the token in their letter."""

import sqlalchemy as sa
from alembic import op

from storage.columns import Timestamp

revision = "202611292050"
down_revision = "202611292040"


def upgrade() -> None:
    op.create_table(
        "invites",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("email", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("token_hash", sa.String(), nullable=False),
        sa.Column("invited_by", sa.String(), nullable=False),
        sa.Column("inviter_id", sa.String(), nullable=False),
        sa.Column("expires_at", Timestamp(), nullable=False),
        sa.Column("accepted_at", Timestamp(), nullable=True),
        sa.Column("accepted_by", sa.String(), nullable=True),
        sa.Column("revoked_at", Timestamp(), nullable=True),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.ForeignKeyConstraint(["org_id"], ["organizations.id"], name=op.f("fk_invites_org_id")),
        sa.ForeignKeyConstraint(["inviter_id"], ["users.id"], name=op.f("fk_invites_inviter_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_invites")),
        sa.UniqueConstraint("token_hash", name=op.f("uq_invites_token_hash")),
    )
    op.create_index(op.f("ix_invites_org_id_id"), "invites", ["org_id", "id"])


def downgrade() -> None:
    op.drop_table("invites")
