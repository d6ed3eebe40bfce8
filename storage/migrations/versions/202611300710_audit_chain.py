"""Entries of the audit log have numbers and hashes, and their chains heads that are published."""

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
    _create_publications()


def _create_publications() -> None:
    op.create_table(
        "audit_published_heads",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=True),
        sa.Column("chain", sa.String(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("hash", sa.String(), nullable=False),
        sa.Column("published_at", Timestamp(), nullable=False),
        sa.Column("signature", sa.String(), nullable=False),
        sa.Column("public_key", sa.String(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.ForeignKeyConstraint(
            ["org_id"], ["organizations.id"], name=op.f("fk_audit_published_heads_org_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_published_heads")),
    )
    for column in ("chain", "org_id"):
        name = op.f(f"ix_audit_published_heads_{column}_id")
        op.create_index(name, "audit_published_heads", [column, "id"])
    op.create_table(
        "audit_publications",
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("hash", sa.String(), nullable=False),
        sa.Column("line", sa.Text(), nullable=False),
        sa.Column("published_at", Timestamp(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_audit_publications")),
    )
    name = op.f("ix_audit_publications_published_at")
    op.create_index(name, "audit_publications", ["published_at"])


def downgrade() -> None:
    op.drop_table("audit_publications")
    op.drop_table("audit_published_heads")
    op.drop_table("audit_heads")
    op.drop_index("ix_audit_unsealed", "audit")
    op.drop_index("ix_audit_org_id_seq", "audit")
    op.drop_column("audit", "hash")
    op.drop_column("audit", "seq")
