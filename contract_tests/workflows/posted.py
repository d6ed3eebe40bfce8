"""Invites that are pending, with a letter that is to be sent, and orders that wait."""

from datetime import timedelta

from contract_tests.workflows.stage import Stage
from control.mail import Letter
from control.workflows.access import mail
from storage import identifiers
from storage.access import invites, teams, users
from storage.access.invites import Invite
from storage.database import now
from storage.instances import approvals
from storage.instances.approvals import Approval


def letter(stage: Stage, sent: Letter) -> Invite:
    with stage.database.write() as db:
        name = identifiers.new("").lower()
        user = users.create(db, email=f"{name}@example.com", name="Inviter")
        invite = invites.create(
            db,
            stage.org_id,
            email=sent.to,
            role="member",
            token_hash=name,
            invited_by=user.id,
            inviter_id=user.id,
            expires_at=now(db) + timedelta(days=7),
        )
        mail.post(db, stage.services.sealer, sent, invite)
    return invite


def order(stage: Stage, *, expires_in_s: float = 60) -> Approval:
    """Of somebody who is a user, for the team Everyone."""
    with stage.database.write() as db:
        name = identifiers.new("").lower()
        user = users.create(db, email=f"{name}@example.com", name="Requester")
        values = {
            "team_id": teams.everyone_of(stage.org_id),
            "project_id": "proj_some",
            "requested_by": user.id,
            "requester_id": user.id,
            "order": {"engine": "duckdb", "size": "s1", "name": "sales"},
            "reasons": [{"rule": "every_order", "message": "every order needs approval"}],
            "cost_cents": 1_500,
            "expires_at": now(db) + timedelta(seconds=expires_in_s),
        }
        return approvals.request(db, stage.org_id, values)
