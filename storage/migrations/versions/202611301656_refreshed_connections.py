"""When what an identity provider publishes was read again, and why that failed."""

import sqlalchemy as sa
from alembic import op

from storage.columns import Timestamp

revision = "202611301656"
down_revision = "202611301551"

_TABLE = "sso_connections"


def upgrade() -> None:
    op.add_column(_TABLE, sa.Column("refresh_tried_at", Timestamp(), nullable=True))
    op.add_column(_TABLE, sa.Column("refresh_failure", sa.String(), nullable=True))
    op.add_column(_TABLE, sa.Column("refresh_failed_since", Timestamp(), nullable=True))
    op.create_index(op.f("ix_sso_connections_refresh_tried_at"), _TABLE, ["refresh_tried_at"])


def downgrade() -> None:
    op.drop_index(op.f("ix_sso_connections_refresh_tried_at"), _TABLE)
    op.drop_column(_TABLE, "refresh_failed_since")
    op.drop_column(_TABLE, "refresh_failure")
    op.drop_column(_TABLE, "refresh_tried_at")
