"""The first start of an installation: an owner, an org, a project, an API key and a session."""

import secrets
from datetime import timedelta

from sqlalchemy.orm import Session

from control import identity
from control.services import Services
from menagerie import composition
from menagerie.endpoints import (
    Endpoints,
    Owner,
    make_certificates,
    read_endpoints,
    write_endpoints,
)
from menagerie.settings import Settings
from storage import api_keys, identifiers, memberships, organizations, projects, sessions, users
from storage.database import now


def initialize(settings: Settings) -> tuple[Endpoints, Owner | None]:
    """Make the database fit to start on: its schema, this home's cell, and the first owner."""
    make_certificates(settings)
    services = composition.build_services(settings)
    try:
        return bring_up_to_date(settings, services)
    finally:
        services.database.dispose()


def bring_up_to_date(settings: Settings, services: Services) -> tuple[Endpoints, Owner | None]:
    """What `initialize` makes, or renews after another version or other addresses."""
    services.database.migrate()
    composition.register_local_cell(settings, services)
    return prepare(settings, services)


def prepare(settings: Settings, services: Services) -> tuple[Endpoints, Owner | None]:
    """Make what a fresh installation needs, once; afterwards only refresh the addresses.

    The API key and the session exist in clear nowhere but in endpoints.json and on the terminal.
    """
    before = read_endpoints(settings.root)
    addresses = {
        "base_url": settings.api_url,
        "ca_file": str(settings.root / "ca.pem"),
        "gateway_ports": settings.gateway_ports,
    }
    owner = None
    if before is None:
        made, owner = _make(settings, services)
    else:
        made = {
            name: getattr(before, name)
            for name in ("org_id", "project_id", "api_key", "session_token")
        }
    endpoints = Endpoints(**addresses, **made)  # type: ignore[arg-type]
    if endpoints != before:
        write_endpoints(settings.root, endpoints)
    return endpoints, owner


def _make(settings: Settings, services: Services) -> tuple[dict[str, str], Owner]:
    password = secrets.token_urlsafe(12)
    with services.database.write() as db:
        user = users.create(
            db,
            email=settings.owner_email.lower(),
            name="Owner",
            password_hash=identity.hash_password(password),
        )
        org = organizations.create(
            db,
            name=settings.first_org_name,
            slug=settings.first_org_name.lower().replace(" ", "-"),
            default_region=settings.region,
            plan=settings.first_org_plan,
        )
        memberships.create(db, org.id, user.id, "owner")
        project = projects.create(db, org.id, name="Default", slug="default")
        made = {
            "org_id": org.id,
            "project_id": project.id,
            "api_key": _api_key(db, org.id, user.id),
            "session_token": _session(db, user.id, settings.session_ttl_s),
        }
    return made, Owner(email=settings.owner_email, password=password)


def _api_key(db: Session, org_id: str, user_id: str) -> str:
    key = identity.new_api_key()
    db.add(
        api_keys.ApiKey(
            id=identifiers.new("key_"),
            org_id=org_id,
            name="first start",
            role="owner",
            created_by=user_id,
            prefix=key.prefix,
            token_hash=key.sha256,
        )
    )
    return key.secret


def _session(db: Session, user_id: str, ttl_s: int) -> str:
    token = identity.new_session_token()
    db.add(
        sessions.UserSession(
            id=identifiers.new("ses_"),
            user_id=user_id,
            prefix=token.prefix,
            token_hash=token.sha256,
            expires_at=now(db) + timedelta(seconds=ttl_s),
            user_agent="first start",
        )
    )
    return token.secret
