"""Account tokens: what a letter lets somebody do once with an account, known by a hash."""

import sqlalchemy as sa
from alembic import op

from storage.columns import Timestamp

revision = "202611292356"
down_revision = "202611292354"


def upgrade() -> None:
    op.create_table(
        "account_tokens",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("email", sa.String(), nullable=False),
        sa.Column("token_hash", sa.String(), nullable=False),
        sa.Column("expires_at", Timestamp(), nullable=False),
        sa.Column("used_at", Timestamp(), nullable=True),
        sa.Column("revoked_at", Timestamp(), nullable=True),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.CheckConstraint(
            "kind IN ('password_reset', 'email_change')", name=op.f("ck_account_tokens_kind")
        ),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_account_tokens_user_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_account_tokens")),
        sa.UniqueConstraint("token_hash", name=op.f("uq_account_tokens_token_hash")),
    )
    op.create_index(
        op.f("ix_account_tokens_user_id_kind_id"), "account_tokens", ["user_id", "kind", "id"]
    )
    op.create_index(op.f("ix_account_tokens_email"), "account_tokens", ["email"])


def downgrade() -> None:
    op.drop_table("account_tokens")
