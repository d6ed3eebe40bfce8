"""Which request a batch becomes: a signed POST, or the PUT of an object that a signed URL names."""

import gzip
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

import orjson

from clients import webhook_signing as signing
from control.delivery.receiver_urls import Reach, ReceiverUrl, UrlRefused, receiver_url
from control.policy.violations import Violation, wrong
from control.sealing import Sealer
from control.siem.lines import Lines

SECRETS: Final = ("header_value", "access_key_id", "secret_access_key")
"""Members of a target that are never shown."""
SIGNING_SECRET: Final = "signing_secret"  # noqa: S105 -- the name of a member
BATCH: Final = "siem.batch"
"""In place of the kind of an event, in the headers of a POST."""
NDJSON: Final = "application/x-ndjson"
_SIGNED_FOR: Final = timedelta(minutes=5)
_GZIP_LEVEL: Final = 6
_EXISTS: Final = 412
"""What a bucket answers where the object is there already: the same one, sent before."""


@dataclass(frozen=True)
class SiemBatch:
    """What is sent next for a delivery, the `number`th that it sends."""

    delivery_id: str
    org_id: str
    kind: str
    target: Mapping[str, Any]
    sealed: bytes = field(repr=False)
    number: int
    lines: Lines = field(repr=False)

    @property
    def id(self) -> str:
        """Numbers have no gap, but for a batch given up: a receiver sees if one is missing."""
        return f"{self.delivery_id}-{self.number:012d}"

    @property
    def object_name(self) -> str:
        """By the date of its first line and its number."""
        prefix = self.target.get("prefix") or ""
        return f"{prefix}{self.org_id}/{self.lines.first_at:%Y/%m/%d}/{self.id}.ndjson.gz"


@dataclass(frozen=True)
class SiemRequest:
    """`secret` is what a POST is signed with as it is sent."""

    method: str
    place: ReceiverUrl
    headers: Mapping[str, str] = field(repr=False)
    content: bytes = field(repr=False)
    secret: str | None = field(default=None, repr=False)

    def is_confirmed_by(self, status: int) -> bool:
        return 200 <= status < 300 or (self.method == "PUT" and status == _EXISTS)  # noqa: PLR2004 -- 2xx

    def signed(self, batch: str, at: int) -> Mapping[str, str]:
        """The headers of one attempt at `at` (Unix seconds)."""
        if self.secret is None:
            return self.headers
        made = signing.headers(batch, BATCH, self.content, at, [self.secret])
        return {**made, **self.headers}


def check_places(target: Mapping[str, Any], reach: Reach) -> list[Violation]:
    """What is wrong with the URLs of a target."""
    name = "url" if target["kind"] == "webhook" else "endpoint"
    if name not in target:
        return []
    try:
        place = receiver_url(target[name], reach)
    except UrlRefused as refused:
        return [wrong(f"target/{name}", "url", str(refused))]
    if name == "endpoint" and place.target != "/":
        return [
            wrong("target/endpoint", "url", "must not have a path: the bucket follows its host")
        ]
    return []


def seal(sealer: Sealer, delivery_id: str, secrets: Mapping[str, str]) -> bytes:
    return sealer.seal(orjson.dumps(dict(secrets)), _context(delivery_id))


def request(sealer: Sealer, batch: SiemBatch, reach: Reach) -> SiemRequest:
    """Raises UrlRefused where the settings no longer allow the target, and SealError."""
    secrets = orjson.loads(sealer.open(batch.sealed, _context(batch.delivery_id)))
    make = _to_bucket if batch.kind == "s3" else _to_webhook
    return make(batch, secrets, reach)


def _context(delivery_id: str) -> str:
    return f"siem delivery {delivery_id}"


def _to_webhook(batch: SiemBatch, secrets: Mapping[str, str], reach: Reach) -> SiemRequest:
    place = receiver_url(batch.target["url"], reach)
    headers = {"Content-Type": NDJSON, "User-Agent": "Menagerie"}
    if name := batch.target.get("header_name"):
        headers[name] = secrets["header_value"]
    return SiemRequest("POST", place, headers, batch.lines.content, secrets[SIGNING_SECRET])


def _to_bucket(batch: SiemBatch, secrets: Mapping[str, str], reach: Reach) -> SiemRequest:
    """The same name and bytes whenever the batch is sent again."""
    content = gzip.compress(batch.lines.content, _GZIP_LEVEL, mtime=0)
    place = receiver_url(_signed_url(batch, secrets), reach)
    headers = {"Content-Type": NDJSON, "Content-Encoding": "gzip", "If-None-Match": "*"}
    return SiemRequest("PUT", place, headers, content)


def _signed_url(batch: SiemBatch, secrets: Mapping[str, str]) -> str:
    """Computed here: the store is asked nothing, and only the guarded client connects to it."""
    import obstore  # noqa: PLC0415 -- slow to import, and most installations send to no bucket
    from obstore.store import S3Store  # noqa: PLC0415

    target = batch.target
    bucket, region, endpoint = target["bucket"], target["region"], target.get("endpoint")
    by_host = endpoint is None and "." not in bucket
    if endpoint is None:
        host = f"s3.{region}.amazonaws.com"
        endpoint = f"https://{bucket}.{host}" if by_host else f"https://{host}"
    key = {
        "access_key_id": secrets["access_key_id"],
        "secret_access_key": secrets["secret_access_key"],
        "token": None,
        "expires_at": None,
    }
    # All that the library would else take from the environment, which is the operator's.
    store = S3Store(
        bucket,
        endpoint=endpoint.rstrip("/"),
        region=region,
        virtual_hosted_style_request=by_host,
        skip_signature=False,
        client_options={"allow_http": True},
        credential_provider=lambda: key,  # type: ignore[arg-type]
    )
    return str(obstore.sign(store, "PUT", batch.object_name, _SIGNED_FOR))
