"""Bundles of client CAs are their certificates alone, as newer ones are kept.

Where that changes one, its cell is told again, as it may have read the former one otherwise.
"""

import sqlalchemy as sa
from alembic import op
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

revision = "0010"
down_revision = "0009"

NETWORKS = sa.table(
    "networks",
    sa.column("instance_id", sa.String()),
    sa.column("client_ca_pem", sa.String()),
    sa.column("version", sa.Integer()),
)


def upgrade() -> None:
    connection = op.get_bind()
    kept = sa.select(NETWORKS).where(NETWORKS.c.client_ca_pem.is_not(None))
    for instance_id, pem, version in connection.execute(kept).all():
        canonical = _canonical(pem)
        if canonical != pem:
            connection.execute(
                sa.update(NETWORKS)
                .where(NETWORKS.c.instance_id == instance_id)
                .values(client_ca_pem=canonical, version=version + 1)
            )


def downgrade() -> None:
    """The former text is not kept; its certificates are the same."""


def _canonical(pem: str) -> str:
    try:
        found = x509.load_pem_x509_certificates(pem.encode())
    except ValueError:
        # Nobody gets in by it, and its owner has to replace it.
        return pem
    return "".join(each.public_bytes(Encoding.PEM).decode() for each in found)
