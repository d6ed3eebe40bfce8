"""What identity providers publish is read again every day, and what was read last stays."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from contract_tests.api.conftest import MakeHouse
from contract_tests.api.harness import House, Tenant
from contract_tests.api.sso import with_saml as saml
from contract_tests.api.sso.with_oidc import connected, new_domain, sign_in
from contract_tests.oidc_issuer import JWKS, public, rsa_key
from contract_tests.saml import provider as idp
from contract_tests.saml.provider import at
from contract_tests.sso_provider import SsoProvider
from contract_tests.workflows.known import take_turn
from control.sso import rereading

Json = dict[str, Any]
METADATA = "/metadata"
DAY = timedelta(days=1, minutes=1)
HOUR = timedelta(hours=1, minutes=1)


@pytest.fixture
def house(make_house: MakeHouse) -> House:
    """One of its own: a check is of the connections of all tests that had the house before."""
    made = make_house()
    made.names.start()
    return made


def check_after(house: House, passed: timedelta = DAY) -> None:
    house.pass_time(passed.total_seconds())
    with house.database.write() as db:
        take_turn(db, "sso_connections.check")
    house.settle()


def shown(house: House, tenant: Tenant, connection_id: str) -> Json:
    path = f"{tenant.path}/sso/connections/{connection_id}"
    found: Json = house.get(path, tenant.key).json()
    return found


def change(house: House, tenant: Tenant, connection_id: str, **body: Any) -> Json:
    path = f"{tenant.path}/sso/connections/{connection_id}"
    answer = house.request("PATCH", path, tenant.key, json=body)
    assert answer.status_code == 200, answer.text
    found: Json = answer.json()
    return found


def audited(house: House, tenant: Tenant, action: str) -> list[Json]:
    answer = house.get(f"{tenant.path}/audit?action={action}&limit=50", tenant.key)
    assert answer.status_code == 200, answer.text
    return list(answer.json()["items"])


def alerts(house: House, tenant: Tenant) -> list[tuple[str, str]]:
    found = house.get(f"{tenant.path}/alerts?include_resolved=false", tenant.key).json()["items"]
    return [(one["kind"], one["severity"]) for one in found]


def publish(provider: SsoProvider, content: Callable[[], bytes]) -> None:
    """Metadata of SAML, beside what the provider answers anyway."""
    told = provider.told
    provider.told = lambda path, form: (  # type: ignore[method-assign]
        (200, content()) if path == METADATA else told(path, form)
    )


def metadata(house: House, **said: Any) -> bytes:
    return idp.metadata_xml(saml.signer(house, **said))


def by_url(house: House, tenant: Tenant, provider: SsoProvider) -> str:
    body = {"name": "By URL", "saml": {"metadata_url": f"{provider.url}{METADATA}"}}
    made = house.post(f"{tenant.path}/sso/connections", tenant.key, json=body)
    assert made.status_code == 201, made.text
    return str(made.json()["id"])


def test_a_provider_changes_its_keys_and_addresses_and_needs_nobody(
    house: House, provider: SsoProvider
) -> None:
    tenant = house.tenant()
    made = connected(house, tenant, provider)
    check_after(house)
    assert audited(house, tenant, "sso_connection.refresh") == []
    new = rsa_key("next")
    provider.keys = [public(new, "rsa-2")]
    provider.changed = {"authorization_endpoint": f"{provider.url}/elsewhere"}
    check_after(house)
    told = audited(house, tenant, "sso_connection.refresh")
    assert [(one["actor_kind"], one["detail"]) for one in told] == [
        ("system", {"kind": "oidc", "changed": ["authorization_endpoint", "keys"]})
    ]
    after = shown(house, tenant, made["id"])
    assert after["oidc"]["provider_read_at"] > made["oidc"]["provider_read_at"]
    # At once: no sign-in has to name the new key first.
    provider.asked.clear()
    begun = house.post("/v1/sso/sign-ins", json={"connection_id": made["id"]}).json()
    assert begun["redirect_url"].startswith(f"{provider.url}/elsewhere?")
    with house.database.read() as db:
        from storage.sso import connections  # noqa: PLC0415

        known = connections.fetch(db, tenant.org_id, made["id"]).keys
    assert known is not None
    assert [each["kid"] for each in known] == ["rsa-2"]
    assert provider.asked == []


def test_each_is_read_once_a_day_and_none_that_is_disabled(
    house: House, provider: SsoProvider
) -> None:
    tenant = house.tenant()
    made = connected(house, tenant, provider)
    provider.asked.clear()
    check_after(house, HOUR)
    assert provider.asked == []
    check_after(house)
    check_after(house, HOUR)
    assert [one[0] for one in provider.asked].count(JWKS) == 1
    change(house, tenant, made["id"], status="disabled")
    provider.asked.clear()
    check_after(house)
    assert provider.asked == []


BROKEN: dict[str, Json] = {
    "names another issuer": {"issuer": "https://another.example.com"},
    "no token_endpoint": {"token_endpoint": None},
    "jwks_uri must be a URL": {"jwks_uri": "file:///etc/passwd"},
    "must begin with https": {"token_endpoint": "http://example.com/token"},
    "none of": {"id_token_signing_alg_values_supported": ["HS256", "none"]},
    "larger than": {"padding": "x" * (300 << 10)},
}


@pytest.mark.parametrize("why", BROKEN)
def test_what_cannot_be_read_changes_nothing_and_is_told_after_a_day(
    house: House, provider: SsoProvider, why: str
) -> None:
    tenant = house.tenant()
    made = connected(house, tenant, provider)
    provider.changed = BROKEN[why]
    check_after(house)
    failed = shown(house, tenant, made["id"])
    assert why in failed["refresh_failure"]
    assert failed["status"] == "active"
    assert failed["oidc"]["provider_read_at"] == made["oidc"]["provider_read_at"]
    assert alerts(house, tenant) == []
    # It is tried again in an hour, and not before.
    provider.asked.clear()
    check_after(house, HOUR / 3)
    assert provider.asked == []
    check_after(house, HOUR)
    assert len(provider.asked) > 0
    check_after(house)
    assert alerts(house, tenant) == [("sso_provider_unreadable", "warning")]
    house.set_clock_right()
    answer = sign_in(house, made, provider, email=f"a@{new_domain()}")
    assert answer.status_code == 201, answer.text

    provider.changed = {}
    check_after(house, 4 * DAY)
    assert shown(house, tenant, made["id"])["refresh_failure"] is None
    assert alerts(house, tenant) == []


def test_whoever_disables_or_removes_a_connection_is_told_no_more(
    house: House, provider: SsoProvider
) -> None:
    tenant = house.tenant()
    made = connected(house, tenant, provider)
    provider.changed = {"token_endpoint": None}
    for _ in range(3):
        check_after(house)
    assert alerts(house, tenant) == [("sso_provider_unreadable", "warning")]
    change(house, tenant, made["id"], status="disabled")
    assert alerts(house, tenant) == []
    change(house, tenant, made["id"], status="active")
    assert alerts(house, tenant) == [("sso_provider_unreadable", "warning")]
    path = f"{tenant.path}/sso/connections/{made['id']}"
    assert house.request("DELETE", path, tenant.key).status_code == 204
    assert alerts(house, tenant) == []


def test_a_change_that_somebody_makes_meanwhile_stays(
    house: House, provider: SsoProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant = house.tenant()
    made = connected(house, tenant, provider)
    other = SsoProvider()
    read = rereading.read

    def change_meanwhile(*given: Any) -> Any:
        found = read(*given)
        change(house, tenant, made["id"], oidc={"issuer": other.url})
        return found

    monkeypatch.setattr(rereading, "read", change_meanwhile)
    try:
        check_after(house)
        monkeypatch.undo()
        begun = house.post("/v1/sso/sign-ins", json={"connection_id": made["id"]}).json()
        assert begun["redirect_url"].startswith(other.url)
    finally:
        other.close()


def test_a_certificate_changes_at_the_url_and_nowhere_else(
    house: House, provider: SsoProvider
) -> None:
    tenant, old, new = house.tenant(), idp.SIGNER.key, idp.OTHER.key
    current: list[bytes] = [metadata(house, key=old)]
    publish(provider, lambda: current[0])
    connection = by_url(house, tenant, provider)
    assert saml.sign_in(house, connection).status_code == 201
    current[0] = metadata(house, key=new)
    check_after(house)
    told = audited(house, tenant, "sso_connection.refresh")
    assert [one["detail"]["changed"] for one in told] == [["certificates"]]
    # Proven already, it stays so; and the certificate of before counts no more.
    assert shown(house, tenant, connection)["status"] == "active"
    refused = saml.sign_in(house, connection)
    assert refused.json()["reason"] == "signature_wrong"
    current[0] = metadata(house, key=old)
    check_after(house)
    assert saml.sign_in(house, connection).status_code == 201


def another(house: House) -> bytes:
    return metadata(house).replace(idp.ISSUER.encode(), b"https://another.example.com")


def with_an_entity(house: House) -> bytes:
    dtd = b'<!DOCTYPE x [<!ENTITY x SYSTEM "file:///etc/passwd">]>'
    return dtd + metadata(house)


def that_has_ended(house: House) -> bytes:
    ended = at(saml.moment(house) - timedelta(minutes=1)).encode()
    return metadata(house).replace(b"entityID=", b'validUntil="' + ended + b'" entityID=', 1)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (another, "another identity provider, https://another.example.com"),
        (with_an_entity, "DTD"),
        (that_has_ended, "has ended"),
        (lambda _: b"<html>sign in first</html>", "EntityDescriptor"),
        (lambda _: b"x" * (300 << 10), "larger than"),
    ],
)
def test_metadata_that_is_not_the_providers_is_not_taken(
    house: House, provider: SsoProvider, content: Callable[[House], bytes], why: str
) -> None:
    tenant = house.tenant()
    current: list[bytes] = [metadata(house)]
    publish(provider, lambda: current[0])
    connection = by_url(house, tenant, provider)
    before = shown(house, tenant, connection)["saml"]["identity_provider"]
    house.pass_time(DAY.total_seconds())
    current[0] = content(house)
    check_after(house, timedelta())
    after = shown(house, tenant, connection)
    assert why in after["refresh_failure"]
    assert after["saml"]["identity_provider"] == before
    assert saml.sign_in(house, connection).status_code == 201


def test_what_is_recorded_by_hand_is_not_overwritten(house: House, provider: SsoProvider) -> None:
    tenant, url = house.tenant(), f"{provider.url}{METADATA}"
    publish(provider, lambda: metadata(house))
    connection = by_url(house, tenant, provider)
    by_hand = metadata(house, key=idp.OTHER.key).decode()
    changed = change(house, tenant, connection, saml={"metadata_xml": by_hand})
    assert changed["saml"]["metadata_url"] is None
    provider.asked.clear()
    check_after(house)
    assert provider.asked == []
    certificates = shown(house, tenant, connection)["saml"]["identity_provider"]["certificates"]
    assert certificates == changed["saml"]["identity_provider"]["certificates"]
    again = change(house, tenant, connection, saml={"metadata_url": url})
    assert again["saml"]["metadata_url"] == url
    assert saml.put(house, tenant, metadata_xml=by_hand).json()["saml"]["metadata_url"] is None


def test_an_organization_is_told_before_the_last_certificate_expires(house: House) -> None:
    tenant, now = house.tenant(), saml.moment(house).replace(microsecond=0)

    def record(*days: int) -> None:
        signers = [saml.signer(house, ends=now + timedelta(days=each)) for each in days]
        told = idp.metadata_xml(*signers).decode()
        assert saml.put(house, tenant, metadata_xml=told).status_code == 200

    record(5, 90)
    assert alerts(house, tenant) == []
    record(29)
    assert alerts(house, tenant) == [("sso_certificate_expiring", "warning")]
    record(90)
    assert alerts(house, tenant) == []
    check_after(house, timedelta(days=61))
    assert alerts(house, tenant) == [("sso_certificate_expiring", "warning")]
    check_after(house, timedelta(days=23))
    assert alerts(house, tenant) == [("sso_certificate_expiring", "critical")]
    check_after(house, timedelta(days=10))
    (open_,) = house.get(f"{tenant.path}/alerts?include_resolved=false", tenant.key).json()["items"]
    ended: datetime = now + timedelta(days=90)
    assert open_["title"].endswith(f"expired on {ended:%Y-%m-%d}")
    assert "metadata_url" in open_["reason"]
    record(300)
    assert alerts(house, tenant) == []
