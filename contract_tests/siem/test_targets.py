"""Batches as objects of a bucket, as moto serves one on loopback; and targets that are refused."""

import gzip
import itertools
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import orjson
import pytest
from obstore.store import S3Store

from contract_tests.bucket_server import BUCKET, bucket_server
from contract_tests.siem.rig import HERE, Rig
from control.delivery.receiver_urls import Reach
from control.policy.siem import check_target
from control.sealing import Sealer
from control.siem import targets
from control.siem.lines import Lines
from control.siem.targets import SiemBatch
from control.siem.told import AUDIT
from storage.columns import EPOCH
from storage.database import now
from storage.events import audit_chain
from storage.events.siem_deliveries import StreamPositions

KEY: dict[str, Any] = {"access_key_id": "canary-key", "secret_access_key": "canary-secret"}
WEBHOOK = {"kind": "webhook", "url": "https://siem.example.com/in"}
S3 = {"kind": "s3", "bucket": "audit", "region": "eu-central-1", **KEY}
_numbers = itertools.count()


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with bucket_server() as variables:
        yield variables["AWS_ENDPOINT_URL"]


@pytest.fixture
def bucket(endpoint: str) -> dict[str, Any]:
    prefix = f"of-{next(_numbers)}/"
    return {"bucket": BUCKET, "prefix": prefix, "region": "us-east-1", "endpoint": endpoint}


def objects(target: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The lines of each object, by its name."""
    store = S3Store(
        target["bucket"],
        endpoint=target["endpoint"],
        region=target["region"],
        client_options={"allow_http": True},
        **KEY,
    )
    listed = [each["path"] for some in store.list(target["prefix"]) for each in some]
    contents = {name: gzip.decompress(store.get(name).bytes()) for name in sorted(listed)}
    return {
        name: [orjson.loads(each) for each in content.splitlines()]
        for name, content in contents.items()
    }


def test_batches_become_objects_in_order(rig: Rig, bucket: dict[str, Any]) -> None:
    delivery_id = rig.deliver_to(bucket, **KEY)
    entered = rig.enter(3)
    rig.deliverer()
    rig.until(lambda: rig.delivery(delivery_id).audit_seq == 3, "they are sent")
    entered += rig.enter(2)
    rig.until(lambda: rig.delivery(delivery_id).audit_seq == 5, "they are sent too")
    found = objects(bucket)
    first = next(iter(found))
    assert first.startswith(f"{bucket['prefix']}{rig.org_id}/2")
    assert first.endswith(f"/{delivery_id}-000000000001.ndjson.gz")
    assert len(found) == rig.delivery(delivery_id).batches
    sent = [line["id"] for each in found.values() for line in each if line["type"] == AUDIT]
    assert sent == entered


def test_an_object_that_is_there_is_not_replaced(rig: Rig, bucket: dict[str, Any]) -> None:
    """As after a confirmation that was lost: the same name and bytes are sent again."""
    delivery_id = rig.deliver_to(bucket, **KEY)
    rig.enter(2)
    rig.deliverer()
    rig.until(lambda: rig.delivery(delivery_id).audit_seq == 2, "they are sent")
    before = objects(bucket)
    with rig.database.write() as db:
        lost = db.merge(rig.delivery(delivery_id))
        lost.audit_seq, lost.batches, lost.batch_to = 0, 0, [2, 0, 0]
    entered = rig.enter()
    rig.until(lambda: rig.delivery(delivery_id).audit_seq == 3, "it goes on")
    found = objects(bucket)
    assert {name: found[name] for name in before} == before
    assert found[max(found)][0]["id"] == entered[0]


def test_no_object_of_a_batch_that_was_forgotten_confirms_the_next_one(
    rig: Rig, bucket: dict[str, Any]
) -> None:
    """The forgotten one may have been stored before its confirmation was lost."""
    delivery_id = rig.deliver_to(bucket, **KEY)
    rig.enter(2)
    sending = rig.deliverer()
    rig.until(lambda: rig.delivery(delivery_id).audit_seq == 2, "they are sent")
    sending.stop()
    with rig.database.write() as db:
        lost = db.merge(rig.delivery(delivery_id))
        lost.audit_seq, lost.batches, lost.batch_to = 0, 0, [2, 0, 0]
        assert audit_chain.forget_old(db, now(db) + timedelta(seconds=1), 10) == 2
    entered = rig.enter()
    rig.deliverer()
    rig.until(lambda: rig.delivery(delivery_id).audit_seq == 3, "it goes on")
    sent = [line["id"] for each in objects(bucket).values() for line in each]
    assert sent[-1:] == entered


def test_a_bucket_that_refuses_is_tried_again(rig: Rig, bucket: dict[str, Any]) -> None:
    delivery_id = rig.deliver_to({**bucket, "bucket": "missing"}, **KEY)
    rig.deliverer()
    rig.enter()
    rig.until(lambda: rig.delivery(delivery_id).failures > 1, "it is tried again")
    failing = rig.delivery(delivery_id)
    assert failing.last_error == "the target answered 404"
    assert failing.audit_seq == 0


def batch(kind: str, target: dict[str, Any], sealer: Sealer, **secrets: str) -> SiemBatch:
    lines = Lines(b'{"id":"x"}\n', 1, EPOCH, StreamPositions(1, 0, 0), is_full=False)
    sealed = targets.seal(sealer, "siem_1", secrets)
    return SiemBatch("siem_1", "org_1", kind, target, sealed, 7, lines)


@pytest.mark.parametrize(
    ("target", "url"),
    [
        ({"bucket": "audit"}, "https://audit.s3.eu-central-1.amazonaws.com/org_1/1970/01/01/"),
        ({"bucket": "au.dit"}, "https://s3.eu-central-1.amazonaws.com/au.dit/org_1/1970/01/01/"),
        (
            {"bucket": "audit", "endpoint": "https://minio.example.com:9000/", "prefix": "a=b/"},
            "https://minio.example.com:9000/audit/a%3Db/org_1/1970/01/01/",
        ),
    ],
)
def test_where_objects_are_put(
    target: dict[str, Any], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the operator's environment says of other buckets."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "canary-of-the-operator")
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    sealer = Sealer(b"s" * 32)
    sent = batch("s3", {"region": "eu-central-1", **target}, sealer, **KEY)
    made = targets.request(sealer, sent, Reach())
    place = made.place
    assert f"{place.scheme}://{place.authority}{place.target}".startswith(url)
    assert "X-Amz-Signature=" in place.target
    assert "canary-of-the-operator" not in place.target
    assert KEY["secret_access_key"] not in f"{made!r}{place!r}{sent!r}"
    assert made.headers["If-None-Match"] == "*"
    again = targets.request(sealer, sent, Reach())
    assert again.content == made.content


def test_secrets_of_one_delivery_open_no_other() -> None:
    sealer = Sealer(b"s" * 32)
    sent = batch("webhook", {"url": "https://x.example.com/"}, sealer, signing_secret="whsec_eA==")
    with pytest.raises(Exception, match="belong to another context"):
        targets.request(sealer, replace(sent, delivery_id="siem_2"), HERE)


@pytest.mark.parametrize(
    ("target", "pointer"),
    [
        ({"kind": "webhook"}, "/target/url"),
        ({**WEBHOOK, "bucket": "x"}, "/target/bucket"),
        ({**WEBHOOK, "header_name": "X-Token"}, "/target/header_name"),
        ({**WEBHOOK, "header_value": "x"}, "/target/header_value"),
        *(
            ({**WEBHOOK, "header_name": name, "header_value": "x"}, "/target/header_name")
            for name in ("Host", "Content-Length", "Transfer-Encoding", "SVC-Signature")
        ),
        *(({n: v for n, v in S3.items() if n != name}, f"/target/{name}") for name in list(S3)[1:]),
        ({**S3, "url": "https://x.example.com"}, "/target/url"),
    ],
)
def test_what_a_target_must_have(target: dict[str, Any], pointer: str) -> None:
    assert [each["pointer"] for each in check_target(target)] == [pointer]


def test_targets_that_are_right() -> None:
    for target in (WEBHOOK, {**WEBHOOK, "header_name": "DD-API-KEY", "header_value": "x"}, S3):
        assert check_target(target) == []


# The forms themselves are attacked in contract_tests/delivery; here, that each member is checked.
@pytest.mark.parametrize("member", ["url", "endpoint"])
@pytest.mark.parametrize(
    "url",
    [
        *(
            "http://siem.example.com/",
            "https://127.0.0.1/",
            "https://0x7f.1/",
            "https://localhost/",
        ),
        *("https://2130706433/", "https://[::ffff:10.0.0.1]/", "https://a:b@siem.example.com/"),
        *("https://169.254.169.254/", "ftp://siem.example.com/", "https://[64:ff9b::a00:1]/"),
    ],
)
def test_targets_within_are_refused(member: str, url: str) -> None:
    target = {**(WEBHOOK if member == "url" else S3), member: url}
    (found,) = targets.check_places(target, Reach())
    assert found["pointer"] == f"/target/{member}"


def test_an_endpoint_has_no_path() -> None:
    target = {**S3, "endpoint": "https://minio.example.com/audit"}
    assert targets.check_places(target, Reach())
    assert not targets.check_places({**S3, "endpoint": "https://minio.example.com"}, Reach())


def test_a_target_that_no_request_can_be_made_for_is_told_of(
    rig: Rig, bucket: dict[str, Any]
) -> None:
    """As its owner cannot see the log: it fails like any other, and is tried again."""
    delivery_id = rig.deliver_to({**bucket, "prefix": "../"}, **KEY)
    rig.deliverer()
    rig.enter()
    rig.until(lambda: rig.delivery(delivery_id).failures > 1, "it is tried again")
    assert "no request can be made" in (rig.delivery(delivery_id).last_error or "")
