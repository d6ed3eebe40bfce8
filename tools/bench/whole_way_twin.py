"""Owns the API's twin for the benchmark of the whole way: FastAPI, SQLAlchemy, the same tables.

Four operations as a good engineer writes them by hand, with the checks ours make: the key and its
owner's membership in one query, role and scopes, the organization of every record, keyset cursors
that are signed, the plan's quota, room on the cell, replays sealed for a day, audit, event and
work in the transaction. It has no rate limits and validates against one release of one document.
"""

import base64
import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from fastapi import APIRouter, Depends, FastAPI, Header, HTTPException, Query, Request, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from control.policy.permissions import DEFAULTS
from control.policy.plans import PLANS
from control.policy.sizes import SIZES
from storage.access.api_keys import ApiKey
from storage.access.memberships import Membership
from storage.access.organizations import Organization
from storage.access.projects import Project
from storage.access.users import User
from storage.catalogue.cells import Cell
from storage.database import Database
from storage.events import events
from storage.events.audit import AuditEntry
from storage.identifiers import new
from storage.instances.instances import GONE, Instance
from storage.replays import Replay
from storage.work import Work
from tools.bench.whole_way_schemas import InstanceCreate, InstanceOut, InstancePage, OneTimeUrl

_SECRET: Final = b"t" * 32
_LIVE: Final = ("running", "paused")
_DAY: Final = timedelta(days=1)


class Caller:
    """The key, its organization and its rights, in the request's transaction."""

    def __init__(self, db: Session, key: ApiKey, org: Organization, rights: frozenset[str]) -> None:
        self.db, self.key, self.org, self.rights = db, key, org, rights


_bearer = HTTPBearer()
Credential = Annotated[HTTPAuthorizationCredentials, Depends(_bearer)]


def admit(db: Session, token: str, org_id: str, permission: str) -> Caller:
    digest = hashlib.sha256(token.encode()).hexdigest()
    found = db.execute(
        select(ApiKey, User, Membership.role, Organization)
        .join(User, User.id == ApiKey.created_by)
        .join(Organization, Organization.id == ApiKey.org_id)
        .join(
            Membership,
            (Membership.org_id == ApiKey.org_id) & (Membership.user_id == ApiKey.created_by),
        )
        .where(ApiKey.token_hash == digest)
    ).one_or_none()
    if found is None:
        raise HTTPException(401, "unknown key")
    key, _user, role, org = found
    now = datetime.now(UTC)
    if key.revoked_at is not None or (key.expires_at is not None and key.expires_at <= now):
        raise HTTPException(401, "unknown key")
    if key.suspended_at is not None:
        raise HTTPException(403, "suspended")
    if org.id != org_id:
        raise HTTPException(404, "not found")
    rights = DEFAULTS.of_role(role) & DEFAULTS.granted(key.role, key.scopes)
    if permission not in rights:
        raise HTTPException(403, f"needs {permission}")
    return Caller(db, key, org, rights)


def reading(permission: str) -> Callable[..., Iterator[Caller]]:
    def caller(org_id: str, credential: Credential, request: Request) -> Iterator[Caller]:
        with Session(request.app.state.reader, expire_on_commit=False) as db:
            yield admit(db, credential.credentials, org_id, permission)

    return caller


def writing(permission: str) -> Callable[..., Iterator[Caller]]:
    def caller(org_id: str, credential: Credential, request: Request) -> Iterator[Caller]:
        with Session(request.app.state.writer, expire_on_commit=False) as db, db.begin():
            found = admit(db, credential.credentials, org_id, permission)
            if found.org.status == "closed":
                raise HTTPException(409, "closed")
            yield found

    return caller


Reader = Annotated[Caller, Depends(reading("instances:read"))]
# Committed before the answer is sent, and not after it: what is answered is kept.
Orderer = Annotated[Caller, Depends(writing("instances:write"), scope="function")]
Revealer = Annotated[Caller, Depends(writing("credentials:reveal"), scope="function")]


router = APIRouter(prefix="/v1/orgs/{org_id}")


@router.get("/instances/{instance_id}", response_model=InstanceOut)
def get_instance(instance_id: str, caller: Reader, response: Response) -> Any:
    shown = InstanceOut.model_validate(_instance(caller, instance_id))
    response.headers["ETag"] = _etag(shown)
    return shown


@router.get("/instances", response_model=InstancePage)
def list_instances(
    caller: Reader,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    cursor: Annotated[str | None, Query(max_length=500)] = None,
) -> Any:
    rows = select(Instance).where(Instance.org_id == caller.org.id, Instance.status.not_in(GONE))
    if cursor is not None:
        rows = rows.where(Instance.id < _position(cursor, caller.org.id))
    found = list(caller.db.scalars(rows.order_by(Instance.id.desc()).limit(limit + 1)))
    more = len(found) > limit
    return {
        "items": found[:limit],
        "next_cursor": _cursor(found[limit - 1].id, caller.org.id) if more else None,
    }


@router.post("/projects/{project_id}/instances", status_code=201, response_model=InstanceOut)
def create_instance(
    project_id: str,
    body: InstanceCreate,
    caller: Orderer,
    request: Request,
    response: Response,
    idempotency_key: Annotated[str | None, Header(max_length=255)] = None,
) -> Any:
    replay = None
    if idempotency_key is not None:
        replay = _Replay(caller, idempotency_key, project_id, body)
        if (before := replay.answer()) is not None:
            return before
    shown = InstanceOut.model_validate(_order(caller, project_id, body, request))
    if replay is not None:
        replay.keep(shown)
    response.headers["ETag"] = _etag(shown)
    response.headers["Location"] = f"/v1/orgs/{caller.org.id}/instances/{shown.id}"
    return shown


@router.post("/instances/{instance_id}/credentials/reveal", response_model=OneTimeUrl)
def reveal(instance_id: str, caller: Revealer, request: Request) -> Any:
    instance = _instance(caller, instance_id)
    if instance.ready_at is None or instance.desired_status in GONE:
        raise HTTPException(409, f"the instance is {instance.status}")
    cell = caller.db.get_one(Cell, instance.cell_id)
    expires_at = datetime.now(UTC) + timedelta(seconds=60)
    claims = {"instance_id": instance.id, "action": "reveal", "jti": secrets.token_hex(16)}
    written = json.dumps(claims | {"v": 1, "exp": int(expires_at.timestamp())}).encode()
    signed = base64.urlsafe_b64encode(written).rstrip(b"=")
    signature = base64.urlsafe_b64encode(request.app.state.signing_key.sign(signed)).rstrip(b"=")
    _audit(caller, "credentials.reveal", instance.id, request, {"name": instance.name})
    token = f"{signed.decode()}.{signature.decode()}"
    url = f"{cell.public_url}/v1/reveal/{token}"
    return {"url": url, "method": "GET", "expires_at": expires_at}


def _instance(caller: Caller, instance_id: str) -> Instance:
    found = caller.db.get(Instance, instance_id)
    if found is None or found.org_id != caller.org.id:
        raise HTTPException(404, "not found")
    return found


def _order(caller: Caller, project_id: str, body: InstanceCreate, request: Request) -> Instance:
    db, org = caller.db, caller.org
    project = db.get(Project, project_id)
    if project is None or project.org_id != org.id:
        raise HTTPException(404, "not found")
    plan, size = PLANS[org.plan], SIZES.get(body.size)
    if size is None or size.name not in plan.sizes or body.placement not in plan.placements:
        raise HTTPException(422, "the plan does not have this size or placement")
    storage_bytes = body.storage_bytes or size.storage_bytes_included
    mine = Instance.desired_status.in_(_LIVE)
    figures = select(func.count(), func.sum(Instance.storage_bytes)).where(
        Instance.org_id == org.id, mine
    )
    count, stored = db.execute(figures).one()
    if plan.instances_max is not None and count >= plan.instances_max:
        raise HTTPException(422, "the plan has no more instances")
    if plan.storage_bytes_max and int(stored or 0) + storage_bytes > plan.storage_bytes_max:
        raise HTTPException(422, "the plan has no more storage")
    cell, version = _cell(db, body, org.default_region)
    instance_id = new("inst_")
    instance = Instance(
        id=instance_id,
        org_id=org.id,
        project_id=project.id,
        name=body.name or f"{body.engine}-{instance_id[-6:].lower()}",
        engine=body.engine,
        engine_version=version,
        size=body.size,
        region=cell.region,
        placement=body.placement,
        storage_bytes=storage_bytes,
        maintenance_window=body.maintenance_window and body.maintenance_window.model_dump(),
        host=f"db-{instance_id[5:].lower()}.{cell.region}.{cell.instance_domain}",
        port=8443,
        cell_id=cell.id,
        requested_by=caller.key.id,
    )
    db.add(instance)
    try:
        db.flush()
    except IntegrityError as error:
        raise HTTPException(409, "the name is taken") from error
    _audit(caller, "instance.create", instance.id, request, body.model_dump(exclude_unset=True))
    told = {"instance_id": instance.id, "engine": instance.engine, "host": instance.host}
    kind = "instance.requested.v1"
    events.append(db, org.id, kind, told, instance.id)
    args = {"org_id": org.id, "instance_id": instance.id}
    work = {"kind": "instances.provision", "lane": instance.id, "args": args, "steps": {}}
    db.add(Work(operation=new("op_"), due=datetime.now(UTC), **work))
    db.flush()
    return instance


def _cell(db: Session, body: InstanceCreate, region: str | None) -> tuple[Cell, str]:
    """The cell with the engine and room that has the fewest instances, and the newest version."""
    size = SIZES[body.size]
    rows = select(Cell).where(Cell.region == (body.region or region)).with_for_update()
    able = {}
    for cell in db.scalars(rows):
        for offered in cell.engines:
            if offered["engine"] == body.engine:
                able[cell.id] = cell, max(offered["versions"])
    allocated = select(Instance.cell_id, Instance.size, func.count()).where(
        Instance.cell_id.in_(able), Instance.desired_status == "running"
    )
    used = dict.fromkeys(able, 0.0)
    hosted = dict.fromkeys(able, 0)
    for cell_id, name, count in db.execute(allocated.group_by(Instance.cell_id, Instance.size)):
        used[cell_id] += SIZES[name].vcpu * count
        hosted[cell_id] += count
    roomy = [
        cell_id
        for cell_id, (cell, _) in able.items()
        if cell.capacity is None or used[cell_id] + size.vcpu <= 4 * cell.capacity["vcpu"]
    ]
    if not roomy:
        raise HTTPException(422, "no cell has room")
    return able[min(roomy, key=lambda cell_id: hosted[cell_id])]


def _audit(
    caller: Caller, action: str, target: str, request: Request, detail: dict[str, Any]
) -> None:
    caller.db.add(
        AuditEntry(
            id=new("aud_"),
            org_id=caller.org.id,
            action=action,
            actor_kind="api_key",
            actor_id=caller.key.id,
            target=target,
            request_id=request.headers.get("x-request-id") or new("req_"),
            ip=request.client.host if request.client else None,
            detail=detail,
        )
    )


class _Replay:
    """The answer kept for an Idempotency-Key."""

    def __init__(self, caller: Caller, key: str, project_id: str, body: InstanceCreate) -> None:
        asked = f"{caller.key.id}\0{project_id}\0{body.model_dump_json()}"
        self._db, self._cipher = caller.db, AESGCM(_SECRET)
        self._at = (caller.org.id, "instances.create", key)
        self._fingerprint = hmac.digest(_SECRET, asked.encode(), hashlib.sha256).hex()

    def answer(self) -> InstanceOut | None:
        found = self._db.get(Replay, self._at)
        if found is None or found.expires_at <= datetime.now(UTC):
            return None
        if not hmac.compare_digest(found.body_sha256, self._fingerprint):
            raise HTTPException(422, "the key was used for another request")
        sealed = found.body_sealed or b""
        content = self._cipher.decrypt(sealed[:12], sealed[12:], "\0".join(self._at).encode())
        return InstanceOut.model_validate_json(content)

    def keep(self, shown: InstanceOut) -> None:
        nonce = os.urandom(12)
        written, bound = shown.model_dump_json().encode(), "\0".join(self._at).encode()
        scope, operation, key = self._at
        self._db.add(
            Replay(
                scope=scope,
                operation=operation,
                key=key,
                body_sha256=self._fingerprint,
                state="done",
                status=201,
                headers={},
                body_sealed=nonce + self._cipher.encrypt(nonce, written, bound),
                expires_at=datetime.now(UTC) + _DAY,
            )
        )


def _etag(shown: InstanceOut) -> str:
    written = shown.model_dump_json().encode()
    return f'"{hashlib.blake2b(written, digest_size=12).hexdigest()}"'


def _cursor(position: str, org_id: str) -> str:
    mac = hmac.digest(_SECRET, f"{org_id}\0{position}".encode(), hashlib.sha256)[:16]
    return base64.urlsafe_b64encode(mac + position.encode()).decode()


def _position(cursor: str, org_id: str) -> str:
    raw = base64.urlsafe_b64decode(cursor)
    position = raw[16:].decode()
    wanted = hmac.digest(_SECRET, f"{org_id}\0{position}".encode(), hashlib.sha256)[:16]
    if not hmac.compare_digest(raw[:16], wanted):
        raise HTTPException(422, "not a cursor of this list")
    return position


def build(database: Database) -> FastAPI:
    """The app, on the engine of `database`: the same pool, and the same settings of SQLite."""
    app = FastAPI()
    app.state.reader = database.engine
    app.state.writer = database.engine.execution_options(menagerie_writing=True)
    app.state.signing_key = Ed25519PrivateKey.from_private_bytes(_SECRET)
    app.include_router(router)
    return app
