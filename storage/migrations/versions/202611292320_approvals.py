"""Orders that wait for approval, and the policies of teams that ask for it."""

import sqlalchemy as sa
from alembic import op

from storage.columns import Json, Timestamp

revision = "202611292320"
down_revision = "202611292310"


def upgrade() -> None:
    op.add_column("teams", sa.Column("approval_policy", Json, nullable=True))
    op.create_table(
        "approvals",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("team_id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("requested_by", sa.String(), nullable=False),
        sa.Column("requester_id", sa.String(), nullable=False),
        sa.Column("ordered", Json, nullable=False),
        sa.Column("reasons", Json, nullable=False),
        sa.Column("cost_cents", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("expires_at", Timestamp(), nullable=False),
        sa.Column("decided_at", Timestamp(), nullable=True),
        sa.Column("decided_by", sa.String(), nullable=True),
        sa.Column("decision_reason", sa.String(), nullable=True),
        sa.Column("instance_id", sa.String(), nullable=True),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.CheckConstraint(
            "status IN ('pending', 'approved', 'denied', 'expired')",
            name=op.f("ck_approvals_status"),
        ),
        sa.ForeignKeyConstraint(["org_id"], ["organizations.id"], name=op.f("fk_approvals_org_id")),
        sa.ForeignKeyConstraint(
            ["requester_id"], ["users.id"], name=op.f("fk_approvals_requester_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_approvals")),
    )
    op.create_index(op.f("ix_approvals_org_id_id"), "approvals", ["org_id", "id"])
    pending = sa.text("status = 'pending'")
    op.create_index(
        "ix_approvals_pending",
        "approvals",
        ["expires_at"],
        postgresql_where=pending,
        sqlite_where=pending,
    )


def downgrade() -> None:
    op.drop_table("approvals")
    op.drop_column("teams", "approval_policy")
