"""What the control plane works with: made once by the composition root, handed to every request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # these modules name Services themselves
    from control.boundary.breaches import BreachedPasswords
    from control.boundary.rates import Limiter
    from control.cells.client import Cells
    from control.cells.signing import Signer
    from control.mail import Mailer
    from control.sealing import Sealer
    from control.settings import ControlSettings
    from control.sso.providers import Providers
    from control.workflows.events.audit_publishing import KeepsRecords
    from control.workflows.network.dns import Resolver
    from control.workflows.roles.issuer_documents import Issuers
    from storage.database import Database


@dataclass(frozen=True)
class Services:
    database: Database
    sealer: Sealer
    signer: Signer
    limiter: Limiter
    settings: ControlSettings
    cells: Cells
    resolver: Resolver
    issuers: Issuers
    providers: Providers
    mailer: Mailer
    breaches: BreachedPasswords
    audit_logs: tuple[KeepsRecords, ...] = ()
    """Where the heads of the audit log are kept, beside the database."""
