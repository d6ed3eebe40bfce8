"""How much of an organization's kept answers is large, which is limited."""

import sqlalchemy as sa
from alembic import op

revision = "202611222140"
down_revision = "0011"


def upgrade() -> None:
    op.add_column("replays", sa.Column("large_bytes", sa.Integer(), nullable=True))
    is_large = sa.text("large_bytes IS NOT NULL")
    op.create_index(
        "ix_replays_large",
        "replays",
        ["scope", "large_bytes"],
        postgresql_where=is_large,
        sqlite_where=is_large,
    )


def downgrade() -> None:
    op.drop_index("ix_replays_large", table_name="replays")
    op.drop_column("replays", "large_bytes")
