"""The first start of an installation: an owner, an org, a project, an API key and a session."""

import json
import secrets
import shutil
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy.orm import Session

from cell import pki
from control import identity
from control.services import Services
from menagerie import composition, keys
from menagerie.settings import Settings
from storage import api_keys, identifiers, memberships, organizations, projects, sessions, users
from storage.database import now


@dataclass(frozen=True)
class Endpoints:
    """What DIR/endpoints.json holds (mode 0600): where the service is and how to get in."""

    base_url: str
    ca_file: str
    org_id: str
    project_id: str
    api_key: str
    session_token: str
    gateway_ports: dict[str, int]


@dataclass(frozen=True)
class Owner:
    """The owner made at the first start. The password is shown once and kept nowhere."""

    email: str
    password: str


def endpoints_file(root: Path) -> Path:
    return root / "endpoints.json"


def read_endpoints(root: Path) -> Endpoints | None:
    path = endpoints_file(root)
    return Endpoints(**json.loads(path.read_text())) if path.exists() else None


def write_endpoints(root: Path, endpoints: Endpoints) -> None:
    content = json.dumps(asdict(endpoints), indent=2) + "\n"
    keys.write_private(endpoints_file(root), content.encode())


def initialize(settings: Settings) -> tuple[Endpoints, Owner | None]:
    """Make the database fit to start on: its schema, this home's cell, and the first owner."""
    services = composition.build_services(settings)
    make_certificates(settings)
    try:
        services.database.migrate()
        composition.register_local_cell(settings, services)
        return prepare(settings, services)
    finally:
        services.database.dispose()


def make_certificates(settings: Settings) -> None:
    """Make the region's certificates, and put the root where clients find it: HOME/ca.pem."""
    settings.cell_home.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = pki.ensure(
        settings.cell_home, settings.region, settings.instance_domain, datetime.now(UTC)
    )
    shutil.copyfile(made.root_pem, settings.root / "ca.pem")


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
