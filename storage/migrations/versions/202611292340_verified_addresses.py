"""When people have shown that mail to their address reaches them."""

import sqlalchemy as sa
from alembic import op

from storage.columns import Timestamp

revision = "202611292340"
down_revision = "202611292330"


def upgrade() -> None:
    op.add_column("users", sa.Column("email_verified_at", Timestamp(), nullable=True))


def downgrade() -> None:
    op.drop_column("users", "email_verified_at")
