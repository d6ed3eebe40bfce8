"""Passkeys of people, how many each has, and challenges that are used up."""

import sqlalchemy as sa
from alembic import op

from storage.columns import Timestamp

revision = "202611300110"
down_revision = "202611300100"


def upgrade() -> None:
    op.create_table(
        "passkeys",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("credential_id", sa.String(), nullable=False),
        sa.Column("public_key", sa.LargeBinary(), nullable=False),
        sa.Column("sign_count", sa.BigInteger(), nullable=False),
        sa.Column("is_backup_eligible", sa.Boolean(), nullable=False),
        sa.Column("is_backed_up", sa.Boolean(), nullable=False),
        sa.Column("last_used_at", Timestamp(), nullable=True),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_passkeys_user_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_passkeys")),
        sa.UniqueConstraint("credential_id", name=op.f("uq_passkeys_credential_id")),
    )
    op.create_index(op.f("ix_passkeys_user_id"), "passkeys", ["user_id"])
    op.create_table(
        "used_challenges",
        sa.Column("challenge_hash", sa.String(), nullable=False),
        sa.Column("expires_at", Timestamp(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.PrimaryKeyConstraint("challenge_hash", name=op.f("pk_used_challenges")),
    )
    op.create_index(op.f("ix_used_challenges_expires_at"), "used_challenges", ["expires_at"])
    count = sa.Column("passkeys", sa.Integer(), server_default=sa.text("0"), nullable=False)
    op.add_column("users", count)


def downgrade() -> None:
    op.drop_column("users", "passkeys")
    op.drop_table("used_challenges")
    op.drop_table("passkeys")
