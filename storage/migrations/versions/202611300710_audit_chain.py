"""Entries of the audit log have a number and a hash, and each chain of them a head."""

import sqlalchemy as sa
from alembic import op

from storage.columns import Timestamp

revision = "202611300710"
down_revision = "202611300110"

_UNSEALED = sa.text("seq IS NULL")
_SEALED = sa.text("seq IS NOT NULL")


def upgrade() -> None:
    op.add_column("audit", sa.Column("seq", sa.BigInteger(), nullable=True))
    op.add_column("audit", sa.Column("hash", sa.String(), nullable=True))
    op.create_index(
        "ix_audit_org_id_seq",
        "audit",
        ["org_id", "seq"],
        unique=True,
        postgresql_where=_SEALED,
        sqlite_where=_SEALED,
    )
    op.create_index(
        "ix_audit_unsealed",
        "audit",
        ["org_id", "id"],
        postgresql_where=_UNSEALED,
        sqlite_where=_UNSEALED,
    )
    op.create_table(
        "audit_heads",
        sa.Column("chain", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=True),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("hash", sa.String(), nullable=False),
        sa.Column("kept_from", sa.BigInteger(), nullable=False),
        sa.Column("hash_before", sa.String(), nullable=False),
        sa.Column("published_seq", sa.BigInteger(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.ForeignKeyConstraint(
            ["org_id"], ["organizations.id"], name=op.f("fk_audit_heads_org_id")
        ),
        sa.PrimaryKeyConstraint("chain", name=op.f("pk_audit_heads")),
    )


def downgrade() -> None:
    op.drop_table("audit_heads")
    op.drop_index("ix_audit_unsealed", "audit")
    op.drop_index("ix_audit_org_id_seq", "audit")
    op.drop_column("audit", "hash")
    op.drop_column("audit", "seq")
