"""Records that a body or a query names: another organization's is as one that never was."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from contract_tests.api.harness import House
from contract_tests.api.rows import NEVER, OPERATIONS, Estate, body_of, estate, path_of, query_of
from specserver import Operation

# By operation and member, which of another estate's records is tried in it.
NAMED = {
    ("instances.list", "project_id"): "project_id",
    ("approvals.list", "team_id"): "team_id",
    ("backups.restore", "project_id"): "project_id",
    ("projects.create", "team_id"): "team_id",
    ("projects.update", "team_id"): "team_id",
    ("alerts.list", "instance_id"): "instance_id",
    ("access.explain", "user_id"): "user_id",
    ("access.explain", "instance_id"): "instance_id",
    ("access.explain", "project_id"): "project_id",
    ("access.explain", "team_id"): "team_id",
    ("role_assignments.create", "user_id"): "user_id",
    ("role_assignments.create", "team_id"): "team_id",
    ("scim_groups.update", "team_id"): "team_id",
    ("support_grants.create", "instance_ids"): "instance_id",
    ("sso_domains.create", "connection_id"): "connection_id",
    ("sso_domains.update", "connection_id"): "connection_id",
    ("webhooks.redeliver", "delivery_id"): "delivery_id",
    ("audit.list", "actor_id"): "key_id",
    ("audit.export", "actor_id"): "key_id",
    ("audit.list", "instance_id"): "instance_id",
    ("audit.export", "instance_id"): "instance_id",
}
_FILTERS = "tried in events/test_webhooks.py, as they are within `filters`"
NO_RECORDS = {
    ("siem_deliveries.create", "access_key_id"): "of a key at the store, which is not ours",
    **{
        (f"webhooks.{verb}", f"{kind}_ids"): _FILTERS
        for verb in ("create", "update")
        for kind in ("project", "team", "instance")
    },
    ("sso_connections.create", "client_id"): "of the client at the provider, which is not ours",
    ("sso_connections.update", "client_id"): "of the client at the provider, which is not ours",
    ("saml.sign_in", "connection_id"): "tried in sso/test_saml.py, with responses for another's",
    ("payments.receive", "id"): "of an event at Stripe: billing/test_payments.py tries others",
    ("sso_sign_ins.create", "connection_id"): "public: whoever signs in begins with it",
    ("queues.delete_messages", "message_ids"): "numbers within the queue of the path",
    ("queues.archive_messages", "message_ids"): "numbers within the queue of the path",
    **{
        (f"audit.{verb}", "request_id"): "of a request, which its client may have named"
        for verb in ("list", "export")
    },
    ("enterprise.attach", "org_id"): "needs a session: tried in access/test_enterprise.py",
    ("workload_identities.exchange", "service_account_id"): (
        "alike for all that do not trust the token, which test_workload_tokens.py tries"
    ),
    ("events.follow", "after"): "an event: another's is tried in events/test_events.py",
    ("events.follow_instance", "after"): "an event: another's is tried in events/test_events.py",
    ("users.create", "invite_token"): "a secret, which alone says what it is good for",
    ("me.confirm_email", "email_token"): "a secret, which alone says what it is good for",
    ("password_resets.complete", "reset_token"): "a secret, which alone says what it is good for",
}
_ID = re.compile(r"\^\(?[a-z]+_")
BY_ID = {one.id: one for one in OPERATIONS}


def members(schema: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """All that a body may have, at any depth, by the name of the member."""
    yield name, schema
    for each, inner in schema.get("properties", {}).items():
        yield from members(inner, each)
    for inner in (schema.get("items"), schema.get("additionalProperties")):
        if isinstance(inner, dict):
            yield from members(inner, name)
    for each in ("oneOf", "anyOf", "allOf"):
        for inner in schema.get(each, ()):
            yield from members(inner, name)


def named(operation: Operation) -> set[str]:
    content = operation.document.get("requestBody", {}).get("content", {})
    given = [one for kind in content.values() for one in members(kind.get("schema", {}))]
    queries = [one for one in operation.document["parameters"] if one["in"] == "query"]
    given += [(one["name"], one.get("schema", {})) for one in queries]
    return {
        name
        for name, schema in given
        if re.search(r"_ids?$", name) or _ID.match(str(schema.get("pattern", "")))
    }


def test_each_record_that_a_request_names_is_known() -> None:
    """One that is not tried below may be another organization's."""
    found = {(one.id, name) for one in OPERATIONS for name in named(one)}
    assert found == NAMED.keys() | NO_RECORDS.keys()


@pytest.fixture(scope="module")
def estates(house: House) -> tuple[Estate, Estate]:
    made = estate(house, "Mine"), estate(house, "Another")
    # The work of both may have moved it on; an export would then be part of itself.
    house.set_clock_right()
    return made


def asked(house: House, operation: Operation, mine: Estate, member: str, value: str) -> Any:
    queries = {one["name"] for one in operation.document["parameters"] if one["in"] == "query"}
    params = query_of(operation, mine.ids)
    options: dict[str, Any] = {"params": {**params, member: value}} if member in queries else {}
    if member not in queries:
        known = {name: mine.ids[name] for name in ("user_id",) if name in body_of(operation)}
        given: Any = [value] if member.endswith("_ids") else value
        options["json"] = {**body_of(operation), **known, member: given}
    path = path_of(operation, mine.ids)
    return house.request(operation.method, path, mine.tenant.key, **options)


@pytest.mark.parametrize(("operation_id", "member"), NAMED)
def test_anothers_is_as_one_that_never_was(
    house: House, estates: tuple[Estate, Estate], operation_id: str, member: str
) -> None:
    mine, other = estates
    operation, kind = BY_ID[operation_id], NAMED[operation_id, member]
    theirs = other.ids[kind]
    prefix = theirs.partition("_")[0]
    answers = [
        asked(house, operation, mine, member, value) for value in (theirs, f"{prefix}_{NEVER}")
    ]
    first, second = (
        re.sub(r'"(request_id|instance)": ?"[^"]*"', "", each.text).replace(theirs, "")
        for each in answers
    )
    assert answers[0].status_code == answers[1].status_code
    assert first == second.replace(f"{prefix}_{NEVER}", "")
    assert answers[0].status_code in {200, 404, 422}, answers[0].text
    if answers[0].is_success:
        # One's own is found in the same way, or nothing would be shown by that.
        own = asked(house, operation, mine, member, mine.ids[kind])
        assert own.text != answers[0].text
