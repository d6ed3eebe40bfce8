"""Invites that are pending, with a letter that is to be sent."""

from datetime import timedelta

from contract_tests.workflows.stage import Stage
from control.mail import Letter
from control.workflows.access import mail
from storage import identifiers
from storage.access import invites, users
from storage.access.invites import Invite
from storage.database import now


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
