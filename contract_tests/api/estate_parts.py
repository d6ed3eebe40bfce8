"""Parts of an estate (`rows.estate`) that take some lines to make."""

from contract_tests.api.harness import House, Tenant
from storage import identifiers
from storage.access.passkeys import Passkey
from storage.sso import scim_groups, scim_tokens


def with_passkey(house: House, tenant: Tenant) -> str:
    """The id of a passkey of the owner, whose sessions are asked for a second factor from then on.

    It is not counted, so that tests without a second factor are about the same people.
    """
    with house.database.write() as db:
        made = Passkey(
            id=identifiers.new("pk_"),
            user_id=tenant.owner.id,
            name="Phone",
            credential_id=identifiers.new("made-up-"),
            public_key=b"none",
            sign_count=0,
            is_backup_eligible=True,
            is_backed_up=False,
        )
        db.add(made)
        return made.id


def pushed(house: House, tenant: Tenant, name: str) -> tuple[str, str]:
    """The ids of a SCIM group and of a SCIM token of this name."""
    with house.database.write() as db:
        group = scim_groups.create(db, tenant.org_id, name, external_id=name, is_pushed=True)
        token = scim_tokens.create(
            db,
            tenant.org_id,
            name=name,
            prefix="mscim_000000",
            token_hash=identifiers.new("hash-"),
            default_role="member",
            created_by=tenant.owner.id,
            expires_at=None,
        )
        return group.id, token.id
