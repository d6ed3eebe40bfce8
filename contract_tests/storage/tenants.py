"""Makes an organization with all that an instance needs."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from storage import identifiers
from storage.access import organizations, projects
from storage.access.api_keys import ApiKey
from storage.access.memberships import Membership
from storage.catalogue import cells
from storage.instances.instances import Instance
from storage.network.domains import Domain
from storage.roles import held_roles


@dataclass(frozen=True)
class Tenant:
    org_id: str
    project_id: str
    cell_id: str


def make(db: Session) -> Tenant:
    slug = identifiers.new("org").lower()
    org = organizations.create(db, name="Org", slug=slug)
    project = projects.create(db, org.id, name="Project", slug="project")
    cell = cells.register(
        db,
        "cell_one",
        region="local",
        url="http+unix:///nowhere",
        public_url="https://cell.local.localhost:8443",
        instance_domain="localhost",
    )
    return Tenant(org.id, project.id, cell.id)


def instance(db: Session, tenant: Tenant, **values: Any) -> Instance:
    instance_id = identifiers.new("inst_")
    chosen: dict[str, Any] = {
        "name": instance_id,
        "engine": "duckdb",
        "engine_version": "1.5",
        "size": "f0",
        "status": "requested",
        "desired_status": "running",
        **values,
    }
    made = Instance(
        id=instance_id,
        org_id=tenant.org_id,
        project_id=tenant.project_id,
        region="local",
        storage_bytes=10**9,
        host=f"duckdb-{instance_id[5:].lower()}.local.localhost",
        port=8443,
        cell_id=tenant.cell_id,
        **chosen,
    )
    db.add(made)
    db.flush()
    return made


def key(db: Session, org_id: str, user_id: str, **values: Any) -> ApiKey:
    key_id = identifiers.new("key_")
    made = ApiKey(
        id=key_id,
        org_id=org_id,
        name="key",
        role="member",
        created_by=user_id,
        prefix="mk_live_0000",
        token_hash=key_id,
        **values,
    )
    db.add(made)
    db.flush()
    return made


def domain(db: Session, instance: Instance, hostname: str, status: str = "pending") -> Domain:
    made = Domain(
        id=identifiers.new("dom_"),
        org_id=instance.org_id,
        instance_id=instance.id,
        hostname=hostname,
        cname_target=instance.host,
        status=status,
    )
    db.add(made)
    db.flush()
    return made


def roles_in_teams(db: Session, membership: Membership) -> dict[str, str]:
    """By the ids of the teams, as they are read with a caller."""
    found = held_roles.find(db, membership.org_id, membership.user_id)
    assert found is not None
    return found[2] or {}
