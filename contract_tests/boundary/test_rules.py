"""The document's policy is whole, or the service does not start."""

from typing import Any

import pytest

from contract_tests.boundary.document import ORG, document, operation
from control.boundary import DocumentRefused, check_document
from control.boundary.rules import Rule, rule_of
from specserver import Document, Operation


def only(path: str, method: str, **changes: Any) -> dict[str, Any]:
    """A document of one operation, with some of its members changed; None takes one away."""
    made = operation("things.change", path, "org:write", audit="thing.change")
    for short, value in changes.items():
        name = short if short == "security" else "x-" + short.replace("_", "-")
        made.pop(name, None)
        if value is not None:
            made[name] = value
    return {"paths": {path: {method: made}}}


def test_the_document_of_these_tests_is_whole() -> None:
    Document(document())
    check_document(document())


RATES = "default, unauthenticated, authentication, discovery, device, reveal"


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"authorize": None}, "x-authorize is missing"),
        (
            {"authorize": {}},
            "x-authorize names no permission; say none or self where there is none",
        ),
        (
            {"authorize": {"permission": "org:rule"}},
            "x-authorize: permission is 'org:rule', which does not exist",
        ),
        (
            {"authorize": {"permission": "none", "colour": "red"}},
            "x-authorize says colour, which is unknown",
        ),
        (
            {"authorize": {"permission": "none", "assurance": "high"}},
            "x-authorize: assurance is 'high', which does not exist",
        ),
        (
            {"authorize": {"permission": "none", "session": "user"}},
            "x-authorize requires a user session, but security allows API keys",
        ),
        (
            {"authorize": {"permission": "org:write", "scope": "team"}},
            "org:write is held in the org, so its scope is org and not team",
        ),
        (
            {"authorize": {"permission": "org:read"}},
            "it changes something, and org:read is to read; say x-locks: [] if it does not",
        ),
        (
            {"authorize": {"permission": "logs:read", "scope": "org"}, "locks": []},
            "logs:read is held in the team, so its scope is team and not org",
        ),
        (
            {"authorize": {"permission": "org:read", "sso": "held"}, "locks": []},
            "x-authorize says sso, which is for what is of a caller about itself",
        ),
        (
            {"asks": "anybody"},
            "x-asks is 'anybody'; the allowed values are sso_provider, sso_sign_in",
        ),
        ({"audit": None}, "x-audit is missing"),
        ({"audit": "none"}, "x-audit is none, but x-audit-reason does not say why"),
        ({"rate_limit": None}, f"x-rate-limit is None, not one of {RATES}"),
        ({"rate_limit": "generous"}, f"x-rate-limit is 'generous', not one of {RATES}"),
        (
            {"password": "password"},
            "x-password needs x-rate-limit: authentication, or its guesses go uncounted",
        ),
        (
            {"code": "code"},
            "x-code needs x-rate-limit: authentication, or its guesses go uncounted",
        ),
        (
            {"token": "token"},
            "x-token needs x-rate-limit: authentication, or its guesses go uncounted",
        ),
        (
            {"events": ["thing.gone.v1", "thing.changed.v1"]},
            "x-events names what webhooks does not describe: thing.changed.v1, thing.gone.v1",
        ),
        (
            {"done_by": "magic"},
            "x-done-by is 'magic'; the allowed values are cell and reading",
        ),
        ({"done_by": "reading"}, "x-done-by is reading, which is for a GET that is audited"),
        ({"security": []}, "anyone may call it, but x-authorize requires a permission"),
        (
            {"security": [{"digest": [], "basic": []}]},
            "security names unknown schemes: basic, digest",
        ),
    ],
)
def test_what_is_missing_or_unknown_is_named(changes: dict[str, Any], fault: str) -> None:
    check_document(only(ORG, "post"))
    with pytest.raises(DocumentRefused) as refused:
        check_document(only(ORG, "post", **changes))
    assert refused.value.faults == [f"things.change: {fault}"]
    assert str(refused.value) == (f"the document's policy is incomplete:\nthings.change: {fault}")


def test_what_a_cell_does_has_no_events_of_a_transaction() -> None:
    made = only(ORG, "post", done_by="cell", events=["instance.ready.v1"])
    made["webhooks"] = {"instance.ready.v1": {}}
    with pytest.raises(DocumentRefused) as refused:
        check_document(made)
    told = "things.change: it is done before the transaction, so there is none for its x-events"
    assert refused.value.faults == [told]
    check_document(only(ORG, "post", done_by="cell"))
    check_document(only(ORG, "get", done_by="reading"))
    for unaudited in ({"audit": None}, {"audit": "none", "audit_reason": "it reads"}):
        with pytest.raises(DocumentRefused):
            check_document(only(ORG, "get", done_by="reading", **unaudited))
    check_document(
        {**only(ORG, "post", events=["instance.ready.v1"]), "webhooks": made["webhooks"]}
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"authorize": {"permission": "org:write", "scope": "org"}},
        {"authorize": {"permission": "logs:read", "scope": "team"}, "locks": []},
        {"authorize": {"permission": "none"}, "security": []},
        {"password": "password", "code": "code", "rate_limit": "authentication"},
        {"audit": "none", "audit_reason": "it changes nothing that lasts"},
        {"rate_limit": "reveal"},
    ],
)
def test_a_policy_that_is_whole(changes: dict[str, Any]) -> None:
    check_document(only(ORG, "post", **changes))


def rule(method: str = "post", **changes: Any) -> Rule:
    """Of an operation with some of its members changed; `security` as it is held to."""
    security = changes.get("security", [{"api_key": []}, {"dev_user": []}])
    document = only(ORG, method, **changes)["paths"][ORG][method]
    return rule_of(Operation(ORG, method, {**document, "security": security}))


def test_a_rule_is_what_the_document_says() -> None:
    plain = rule()
    assert (plain.permission, plain.audit, plain.rate) == ("org:write", "thing.change", "default")
    assert (plain.assurance, plain.session_only, plain.owner_only) == ("none", False, False)
    assert (plain.mutating, plain.deletes, plain.outside, plain.optional) == (True, *[False] * 3)
    assert (plain.in_org, plain.events, plain.secret) == (True, frozenset(), frozenset())
    assert (plain.password, plain.code, plain.subjects) == (None, None, ())
    assert plain.accepts == {"api_key", "session"}
    assert plain.leaves_records
    assert plain.writes
    assert (plain.sensitive, plain.brief) == (False, False)

    strict = {"permission": "org:write", "assurance": "mfa", "role": "owner", "session": "user"}
    sessions_only = rule(authorize=strict, security=[{"dev_user": []}, {}])
    assert (sessions_only.assurance, sessions_only.sensitive) == ("mfa", True)
    assert not sessions_only.brief
    assert (sessions_only.session_only, sessions_only.owner_only) == (True, True)
    assert sessions_only.accepts == {"session"}
    assert sessions_only.optional


def test_a_rule_knows_the_secrets_of_the_body_and_of_the_response() -> None:
    document = only(ORG, "post")["paths"][ORG]["post"]
    for name, mark in (("password", "writeOnly"), ("token", "x-secret")):
        schema = {"properties": {name: {"type": "string", mark: True}}}
        message = {"content": {"application/json": {"schema": schema}}}
        if name == "password":
            document["requestBody"] = message
        else:
            document["responses"] = {"201": message}
    document["security"] = [{"api_key": []}]
    found = rule_of(Operation(ORG, "post", document))
    assert found.secret == {"password", "token"}
    assert (found.tells, found.brief) == (True, False)
    document["x-rate-limit"] = "authentication"
    document["x-authorize"] = {"permission": "org:write", "assurance": "step_up"}
    assert rule_of(Operation(ORG, "post", document)).brief


def test_a_rule_has_the_records_of_the_path_and_holds_what_it_changes() -> None:
    path = f"{ORG}/projects/{{project_id}}"
    for method, held in (("post", True), ("get", False)):
        document = only(path, method)["paths"][path][method]
        document["security"] = [{"api_key": []}]
        (found,) = rule_of(Operation(path, method, document)).subjects
        assert (found.name, found.lock) == ("project", held)


def test_what_a_rule_comes_to() -> None:
    ends = rule("delete")
    assert (ends.deletes, ends.leaves_records, ends.writes) == (True, False, True)
    reads = rule("get", audit="none", audit_reason="it reads")
    assert (reads.mutating, reads.audit, reads.writes) == (False, None, False)
    audited = rule("get")
    assert (audited.mutating, audited.writes, audited.leaves_records) == (False, True, True)
    revealed = rule(rate_limit="reveal")
    assert (revealed.sensitive, revealed.leaves_records, revealed.brief) == (True, False, True)
    guessed = rule(rate_limit="authentication", password="old", code="totp", events=["a.v1"])
    assert (guessed.sensitive, guessed.password, guessed.code) == (True, "old", "totp")
    assert guessed.events == {"a.v1"}
    assert rule(events=None).events == frozenset()
    assert rule(done_by="cell").outside
    assert rule("get", done_by="reading").outside


def test_every_fault_of_the_document_is_given_at_once() -> None:
    whole = only(ORG, "post", audit=None, rate_limit=None)
    whole["paths"].update(only("/v1/things", "delete")["paths"])
    with pytest.raises(DocumentRefused) as refused:
        check_document(whole)
    assert refused.value.faults == [
        "things.change: x-audit is missing",
        f"things.change: x-rate-limit is None, not one of {RATES}",
        "things.change: org:write is granted in an organization, but the path names none",
    ]


def test_an_operation_without_an_id_is_named_by_its_place() -> None:
    made = only(ORG, "post", audit=None)
    del made["paths"][ORG]["post"]["operationId"]
    with pytest.raises(DocumentRefused) as refused:
        check_document(made)
    assert refused.value.faults == [f"post {ORG}: x-audit is missing"]


def test_a_document_without_operations_is_whole() -> None:
    check_document({})


def test_parameters_may_stand_beside_the_operations_of_a_path() -> None:
    made = only(ORG, "post")
    item = made["paths"][ORG]
    parameters = item["post"].pop("parameters")
    with pytest.raises(DocumentRefused, match=r"\{org_id\} is not among"):
        check_document(made)
    item["parameters"] = parameters
    check_document(made)
    about_oneself = {"permission": "self", "sso": "held"}
    made = only("/v1/me", "post", authorize=about_oneself)
    del made["paths"]["/v1/me"]["post"]["parameters"]
    check_document(made)


def test_what_is_of_a_caller_about_itself_says_whether_it_is_for_held_sessions() -> None:
    made = only("/v1/me", "get", authorize={"permission": "self"}, audit=None)
    with pytest.raises(DocumentRefused, match="sso: held or refused"):
        check_document(made)


def test_a_read_owes_no_audit() -> None:
    check_document(only(ORG, "get", audit=None))


def test_security_may_stand_at_the_top_of_the_document() -> None:
    made = only(ORG, "post", security=None)
    with pytest.raises(DocumentRefused):
        check_document(made)
    check_document({**made, "security": [{"api_key": []}]})


def test_an_operation_without_a_policy_lets_nobody_in() -> None:
    bare = Operation("/v1/things", "GET", {"operationId": "things.show", "security": []})
    with pytest.raises(DocumentRefused):
        rule_of(bare)
