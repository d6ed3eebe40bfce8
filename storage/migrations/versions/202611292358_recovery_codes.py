"""Recovery codes: what stands in for an authenticator app, each once, known by a hash."""

import sqlalchemy as sa
from alembic import op

from storage.columns import Timestamp

revision = "202611292358"
down_revision = "202611292357"


def upgrade() -> None:
    op.create_table(
        "recovery_codes",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("code_hash", sa.String(), nullable=False),
        sa.Column("used_at", Timestamp(), nullable=True),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_recovery_codes_user_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_recovery_codes")),
    )
    op.create_index(op.f("ix_recovery_codes_user_id"), "recovery_codes", ["user_id"])


def downgrade() -> None:
    op.drop_table("recovery_codes")
