"""Places where API keys were found by secret scanners."""

import sqlalchemy as sa
from alembic import op

from storage.columns import Timestamp

revision = "202611292354"
down_revision = "202611292352"


def upgrade() -> None:
    op.create_table(
        "key_leaks",
        sa.Column("key_id", sa.String(), nullable=False),
        sa.Column("place_sha256", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("url", sa.String(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.ForeignKeyConstraint(["key_id"], ["api_keys.id"], name=op.f("fk_key_leaks_key_id")),
        sa.ForeignKeyConstraint(["org_id"], ["organizations.id"], name=op.f("fk_key_leaks_org_id")),
        sa.PrimaryKeyConstraint("key_id", "place_sha256", name=op.f("pk_key_leaks")),
    )


def downgrade() -> None:
    op.drop_table("key_leaks")
