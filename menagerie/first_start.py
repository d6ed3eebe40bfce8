"""The first start of an installation: an owner, an org, a project, an API key and a session."""

import json
import os
import secrets
from dataclasses import asdict, replace
from datetime import timedelta
from typing import Any

import structlog
from sqlalchemy.orm import Session

from control.boundary import identity
from control.services import Services
from menagerie import composition
from menagerie.endpoints import (
    Endpoints,
    Owner,
    endpoints_file,
    make_certificates,
    read_endpoints,
    write_endpoints,
)
from menagerie.errors import SettingsError
from menagerie.refusals import unusable
from menagerie.settings import Settings
from storage import identifiers
from storage.access import (
    api_keys,
    memberships,
    organizations,
    passkeys,
    projects,
    recovery_codes,
    sessions,
    users,
)
from storage.database import now
from storage.errors import StateConflict

_LOG = structlog.get_logger(__name__)


def initialize(settings: Settings) -> tuple[Endpoints, Owner | None]:
    """Make the database fit to start on: its schema, this home's cell, and the first owner.

    The API key and the session exist in clear nowhere but in endpoints.json and on the terminal.
    """
    make_certificates(settings)
    services = composition.build_services(settings)
    try:
        bring_up_to_date(settings, services)
        before = read_endpoints(settings.root)
        if before is not None:
            return before, None
        try:
            made, owner = _make(settings, services)
        except StateConflict as error:
            raise SettingsError(f"{error.detail}; choose another first_org_name") from error
        endpoints = Endpoints(**made, **_addresses(settings))
        write_endpoints(settings.root, endpoints)
        return endpoints, owner
    finally:
        services.database.dispose()


def make_and_tell(settings: Settings, writing: int) -> None:
    """Make it in a process of its own, as what that loads would stay; the owner goes to `writing`.

    Raises SystemExit once that process has said why it could not.
    """
    pid = os.fork()
    if pid == 0:
        os._exit(_made_and_told(settings, writing))
    os.close(writing)
    if status := os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        raise SystemExit(status)


def _made_and_told(settings: Settings, writing: int) -> int:
    """The exit status; the owner is written as JSON."""
    try:
        with unusable("serve"):
            owner = initialize(settings)[1]
        os.write(writing, json.dumps(owner and asdict(owner)).encode())
    except SystemExit as end:
        return int(end.code or 0)
    except BaseException:  # noqa: BLE001 -- whatever it is, the process must end here
        _LOG.exception("the first start failed")
        return 1
    return 0


def bring_up_to_date(settings: Settings, services: Services) -> None:
    """Renew what `initialize` made, after another version or other addresses."""
    services.database.migrate()
    before = read_endpoints(settings.root)
    if before is not None:
        _check_database(settings, services)
    composition.register_local_cell(settings, services)
    endpoints = before and replace(before, **_addresses(settings))
    if endpoints is not None and endpoints != before:
        write_endpoints(settings.root, endpoints)


def _addresses(settings: Settings) -> dict[str, Any]:
    return {
        "base_url": settings.api_url,
        "ca_file": str(settings.root / "ca.pem"),
        "gateway_ports": settings.gateway_ports,
    }


def _check_database(settings: Settings, services: Services) -> None:
    """Raises SettingsError where nothing in endpoints.json could let anybody in."""
    with services.database.read() as db:
        if users.is_anyone(db):
            return
    raise SettingsError(
        f"{endpoints_file(settings.root)} belongs to another database: the one in the setting"
        " database_url is empty. Restore that setting, or move the file away to start over"
    )


def _make(settings: Settings, services: Services) -> tuple[dict[str, Any], Owner]:
    """The owner and what they begin with; whatever of it is there gets but new secrets.

    As after a start that was cut short, or where endpoints.json was moved away.
    """
    password = secrets.token_urlsafe(12)
    with services.database.write() as db:
        user = users.by_email(db, settings.owner_email)
        user = user or users.create(db, email=settings.owner_email, name="Owner")
        user.password_hash = identity.hash_password(password)
        _forget_second_factor(db, user)
        owned = [
            org
            for org, role in organizations.of_user(db, user.id)
            if role == "owner" and org.status != "closed"
        ]
        org = owned[0] if owned else _organization(settings, db, user.id)
        project = projects.first(db, org.id)
        project = project or projects.create(db, org.id, name="Default", slug="default")
        made = {
            "org_id": org.id,
            "project_id": project.id,
            "api_key": _api_key(db, org.id, user.id),
            "session_token": _session(db, user.id, settings.session_ttl_s),
        }
    return made, Owner(email=settings.owner_email, password=password)


def _forget_second_factor(db: Session, user: users.User) -> None:
    """Whoever has the machine may do so; the owner of a lost authenticator app has no other way."""
    if user.totp_secret_sealed is None and not user.passkeys:
        return
    user.totp_secret_sealed = user.totp_confirmed_at = user.totp_last_step = None
    passkeys.forget(db, user)
    recovery_codes.forget(db, user.id)
    sessions.forget_second_factor(db, user.id)
    _LOG.warning("removed the owner's authenticator app and passkeys; set up others")


def _organization(settings: Settings, db: Session, user_id: str) -> organizations.Organization:
    org = organizations.create(
        db,
        name=settings.first_org_name,
        slug=settings.first_org_name.lower().replace(" ", "-"),
        default_region=settings.region,
        plan=settings.first_org_plan,
    )
    memberships.create(db, org.id, user_id, "owner")
    return org


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
