"""Keys that a secret scanner reports are suspended; what is forged or sent again does nothing."""

import base64
import json
import re
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from sqlalchemy import func, select

from contract_tests import written
from contract_tests.api import leaks
from contract_tests.api.harness import House, Tenant
from contract_tests.api.leaks import match, report
from contract_tests.api.rows import is_problem
from control.boundary import identity
from storage.access import api_keys
from storage.access.key_leaks import KeyLeak
from storage.events.audit import AuditEntry


@pytest.fixture
def own_house(house: House) -> Iterator[House]:
    """Which takes reports of the scanner for now."""
    before = house.services.settings
    leaks.trust(house)
    yield house
    object.__setattr__(house.services, "settings", before)


@pytest.fixture
def tenant(own_house: House) -> Tenant:
    return own_house.tenant("Leaky")


def suspended(house: House, tenant: Tenant) -> bool:
    with house.database.read() as db:
        key = api_keys.fetch(db, tenant.org_id, tenant.key_id)
        return key.suspended_at is not None


def acts(house: House, tenant: Tenant) -> tuple[int, int, int]:
    """How many audit entries, events and emails of a suspension there are."""
    house.settle()
    with house.database.read() as db:
        audited = [each.action for each in written.audited(db, tenant.org_id)]
        events = [each.type for each in written.events_of(db, tenant.org_id)]
    sent = [each for each in house.letters.sent.values() if "suspended" in each.subject]
    return (
        audited.count("api_key.report_leak"),
        events.count("api_key.suspended.v1"),
        len([each for each in sent if each.to == tenant.owner.email]),
    )


def test_a_reported_key_is_suspended_at_once_and_all_are_told(
    own_house: House, tenant: Tenant
) -> None:
    house = own_house
    second = house.member(tenant.org_id, "owner")
    house.member(tenant.org_id, "admin")
    answer = report(house, match(tenant.key))
    assert answer.status_code == 200, answer.text
    token_hash = sha256(tenant.key.encode()).hexdigest()
    label = {"token_type": "menagerie_api_key", "label": "true_positive"}
    assert answer.json() == [{"token_hash": token_hash, **label}]
    is_problem(house.get(tenant.path, tenant.key), 403, "key_suspended")
    assert acts(house, tenant) == (1, 1, 1)
    letters = [each for each in house.letters.sent.values() if tenant.key_id in each.text]
    assert {each.to for each in letters} == {tenant.owner.email, second.email}
    assert "https: example.com/config.py" in letters[0].text
    assert tenant.key_id in letters[0].text
    with house.database.read() as db:
        entry = written.audited(db, tenant.org_id)[0]
        assert (entry.actor_kind, entry.target) == ("anonymous", tenant.key_id)
        event, alerted = written.events_of(db, tenant.org_id)[-2:]
        assert event.data["key_id"] == tenant.key_id
        assert alerted.data["kind"] == "api_key_suspended"
        assert event.data["url"] == "https://example.com/config.py"
        reason = api_keys.fetch(db, tenant.org_id, tenant.key_id).suspended_reason
    assert reason == "a secret scanner found it in public (content)"


def test_a_report_that_is_sent_again_does_nothing_more(own_house: House, tenant: Tenant) -> None:
    house = own_house
    body = json.dumps([match(tenant.key)]).encode()
    options: dict[str, Any] = {"content": body, "headers": leaks.headers(body)}
    first, again = (house.post(leaks.PATH, **options) for _ in range(2))
    assert first.json() == again.json()
    assert acts(house, tenant) == (1, 1, 1)
    path = f"{tenant.path}/api-keys/{tenant.key_id}/actions/unsuspend"
    assert house.post(path, tenant.owner.session).is_success
    # Whoever unsuspended it has decided about this place, and about no other.
    assert house.post(leaks.PATH, **options).json() == first.json()
    assert not suspended(house, tenant)
    assert report(house, match(tenant.key, url="https://example.com/other.py")).is_success
    assert suspended(house, tenant)
    assert acts(house, tenant) == (2, 2, 2)


@pytest.mark.parametrize(
    "forged",
    [
        {"Github-Public-Key-Signature": ""},
        {"Github-Public-Key-Signature": "x"},
        {"Github-Public-Key-Signature": "AAAA"},
        {"Github-Public-Key-Signature": leaks.signature(b"[]")},
        {"Github-Public-Key-Identifier": "another"},
        {"Github-Public-Key-Identifier": ""},
        {"Github-Public-Key-Identifier": "a" * 300},
    ],
)
def test_a_forged_report_does_nothing(
    own_house: House, tenant: Tenant, forged: dict[str, str]
) -> None:
    house = own_house
    body = json.dumps([match(tenant.key)]).encode()
    answer = house.post(leaks.PATH, content=body, headers=leaks.headers(body, **forged))
    assert answer.status_code in (401, 422)
    assert not suspended(house, tenant)
    assert acts(house, tenant) == (0, 0, 0)


def test_a_signature_is_of_these_bytes_and_by_this_key(own_house: House, tenant: Tenant) -> None:
    house = own_house
    body = json.dumps([match(tenant.key)]).encode()
    other = ec.generate_private_key(ec.SECP256R1())
    by_other = {"Github-Public-Key-Signature": leaks.signature(body, other)}
    answer = house.post(leaks.PATH, content=body, headers=leaks.headers(body, **by_other))
    is_problem(answer, 401, "signature_refused")
    answer = house.post(leaks.PATH, content=body + b" ", headers=leaks.headers(body))
    is_problem(answer, 401, "signature_refused")
    no_headers = {"Content-Type": "application/json"}
    is_problem(house.post(leaks.PATH, content=body, headers=no_headers), 401, "signature_refused")
    raw = base64.b64decode(leaks.signature(body))
    for spoiled in (raw[:-1], raw + b"\0", bytes(len(raw))):
        sent = {"Github-Public-Key-Signature": base64.b64encode(spoiled).decode()}
        answer = house.post(leaks.PATH, content=body, headers=leaks.headers(body, **sent))
        is_problem(answer, 401, "signature_refused")
    assert not suspended(house, tenant)


def test_without_keys_of_scanners_nobody_reports(house: House) -> None:
    tenant = house.tenant()
    is_problem(report(house, match(tenant.key)), 401, "signature_refused")
    assert not suspended(house, tenant)


def test_what_is_no_key_of_ours_is_answered_alike(own_house: House, tenant: Tenant) -> None:
    house = own_house
    unknown = identity.new_api_key().secret
    spoiled = f"{tenant.key[:-1]}{'a' if tenant.key[-1] != 'a' else 'b'}"
    tokens = [unknown, spoiled, tenant.owner.session, "", "hunter2", "mk_live_", "é" * 57]
    answer = report(house, *(match(each) for each in tokens))
    assert {each["label"] for each in answer.json()} == {"false_positive"}
    assert [set(each) for each in answer.json()] == [{"token_hash", "token_type", "label"}] * 7
    assert house.get("/v1/me", tenant.owner.session).is_success


def test_a_key_that_opens_nothing_is_left_as_it_is(own_house: House, tenant: Tenant) -> None:
    house = own_house
    house.change_key(tenant.org_id, tenant.key_id, revoked_at=house.now())
    answer = report(house, match(tenant.key))
    assert answer.json()[0]["label"] == "true_positive"
    assert acts(house, tenant) == (0, 0, 0)


def test_keys_of_several_organizations_are_suspended_by_one_report(own_house: House) -> None:
    house = own_house
    tenants = [house.tenant(f"Org {n}") for n in range(3)]
    twice = [match(tenants[0].key, url=f"https://example.com/{n}") for n in range(2)]
    answer = report(house, *(match(one.key) for one in reversed(tenants)), *twice)
    assert [each["label"] for each in answer.json()] == ["true_positive"] * 5
    for one in tenants:
        assert suspended(house, one)
        assert acts(house, one) == (1, 1, 1)
    with house.database.read() as db:
        rows = select(func.count()).select_from(KeyLeak)
        assert db.scalar(rows.where(KeyLeak.org_id == tenants[0].org_id)) == 3
        entries = select(AuditEntry).where(AuditEntry.action == "api_key.report_leak")
        entries = entries.order_by(AuditEntry.id.desc())
        summary = db.scalars(entries.where(AuditEntry.org_id.is_(None))).first()
        assert summary is not None
        assert summary.detail == {"matches": 5, "known": 3}


@pytest.mark.every_database  # what locks is the database
def test_of_many_reports_at_once_one_acts(own_house: House) -> None:
    house = own_house
    tenants = [house.tenant(f"Org {n}") for n in range(2)]
    matches = [match(one.key) for one in tenants]
    asked = []
    for turn in (matches, matches[::-1]):
        body = json.dumps(turn).encode()
        options = [{"content": body, "headers": leaks.headers(body)} for _ in range(10)]
        asked += [("POST", leaks.PATH, None, each) for each in options]
    answers = house.together(*asked)
    assert {each.status_code for each in answers} == {200}
    assert [acts(house, one) for one in tenants] == [(1, 1, 1)] * 2


@pytest.mark.parametrize(
    ("matches", "status"),
    [
        ([], 422),
        ([match("x")] * 101, 422),
        ([{"token": "x"}], 422),
        ([{"type": "x"}], 422),
        ([match("a" * 501)], 422),
        ([{**match("x"), "token": 7}], 422),
        ([match("x", url="a" * 4_001)], 422),
        ([match("x", url=None)], 422),
        ({"token": "x", "type": "y"}, 422),
        ([match("x", deep={"a": 1})], 422),
        ([{**match("x"), **{f"m{n}": "" for n in range(30)}}], 422),
        ([match("x", url="a" * 3_000)] * 6, 413),
    ],
)
def test_a_report_is_bounded(own_house: House, matches: Any, status: int) -> None:
    body = json.dumps(matches).encode()
    answer = own_house.post(leaks.PATH, content=body, headers=leaks.headers(body))
    is_problem(answer, status)


def test_members_that_a_scanner_adds_are_ignored(own_house: House, tenant: Tenant) -> None:
    assert report(own_house, match(tenant.key, repository="a/b")).is_success
    assert suspended(own_house, tenant)


def test_a_place_is_a_strangers_words(own_house: House, tenant: Tenant) -> None:
    house = own_house
    place = {"url": 'https://x/"\r\nBcc: all@example.com\x1b[2J', "source": "a b\n<script>"}
    assert report(house, match(tenant.key, **place)).is_success
    house.settle()
    letter = next(each for each in house.letters.sent.values() if tenant.key_id in each.text)
    assert not re.search(r"^Bcc", letter.text, re.MULTILINE)
    assert "\x1b" not in letter.text
    assert "https://x" not in letter.text
    with house.database.read() as db:
        key = api_keys.fetch(db, tenant.org_id, tenant.key_id)
        assert key.suspended_reason == "a secret scanner found it in public (unknown)"
