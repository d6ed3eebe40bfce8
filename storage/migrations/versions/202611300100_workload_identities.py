"""Workload identities of service accounts, the keys of issuers, and which API keys they minted."""

import sqlalchemy as sa
from alembic import op

from storage.columns import Json, Timestamp

revision = "202611300100"
down_revision = "202611292359"


def upgrade() -> None:
    _identities()
    _issuers()
    op.add_column("api_keys", sa.Column("workload_identity_id", sa.String(), nullable=True))
    for columns in (["workload_identity_id"], ["service_account_id", "expires_at"]):
        op.create_index(op.f(f"ix_api_keys_{'_'.join(columns)}"), "api_keys", columns)


def _identities() -> None:
    table = "workload_identities"
    trusted = ["service_account_id", "issuer", "audience", "subject"]
    op.create_table(
        table,
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("service_account_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("issuer", sa.String(), nullable=False),
        sa.Column("audience", sa.String(), nullable=False),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("created_by_key_id", sa.String(), nullable=True),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.ForeignKeyConstraint(["org_id"], ["organizations.id"], name=op.f(f"fk_{table}_org_id")),
        sa.ForeignKeyConstraint(
            ["service_account_id"],
            ["service_accounts.id"],
            name=op.f(f"fk_{table}_service_account_id"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{table}")),
        sa.UniqueConstraint(*trusted, name=op.f(f"uq_{table}_trust")),
    )
    op.create_index(op.f(f"ix_{table}_issuer"), table, ["issuer"])


def _issuers() -> None:
    op.create_table(
        "oidc_issuers",
        sa.Column("issuer", sa.String(), nullable=False),
        sa.Column("keys", Json, nullable=True),
        sa.Column("read_at", Timestamp(), nullable=True),
        sa.Column("tried_at", Timestamp(), nullable=True),
        sa.Column("failed_reason", sa.String(), nullable=True),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.PrimaryKeyConstraint("issuer", name=op.f("pk_oidc_issuers")),
    )


def downgrade() -> None:
    for columns in (["service_account_id", "expires_at"], ["workload_identity_id"]):
        op.drop_index(op.f(f"ix_api_keys_{'_'.join(columns)}"), table_name="api_keys")
    op.drop_column("api_keys", "workload_identity_id")
    op.drop_table("oidc_issuers")
    op.drop_table("workload_identities")
