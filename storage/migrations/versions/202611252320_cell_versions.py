"""By what a cell tells newer settings of a network, and newer domains, from older ones."""

import sqlalchemy as sa
from alembic import op

revision = "202611252320"
down_revision = "202611231735"


def upgrade() -> None:
    op.add_column(
        "networks", sa.Column("cell_version", sa.BigInteger(), nullable=False, server_default="0")
    )
    op.execute("UPDATE networks SET cell_version = version")
    with op.batch_alter_table("networks") as table:
        table.alter_column("cell_version", server_default=None)


def downgrade() -> None:
    op.drop_column("networks", "cell_version")
