"""The document's policy is whole, or the service does not start."""

from typing import Any

import pytest

from contract_tests.boundary.document import ORG, document, operation
from control.boundary import DocumentRefused, check_document
from control.boundary.rules import rule_of
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


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"authorize": None}, "x-authorize is missing"),
        ({"authorize": {}}, "names no permission"),
        ({"authorize": {"permission": "org:rule"}}, "permission is 'org:rule'"),
        ({"authorize": {"permission": "none", "colour": "red"}}, "says colour"),
        ({"authorize": {"permission": "none", "assurance": "high"}}, "assurance is 'high'"),
        ({"authorize": {"permission": "none", "session": "user"}}, "security allows API keys"),
        ({"authorize": {"permission": "org:write", "scope": "team"}}, "its scope is org and not"),
        ({"authorize": {"permission": "logs:read", "scope": "org"}}, "its scope is team and not"),
        ({"audit": None}, "x-audit is missing"),
        ({"audit": "none"}, "x-audit-reason does not say why"),
        ({"rate_limit": None}, "x-rate-limit is None"),
        ({"rate_limit": "generous"}, "x-rate-limit is 'generous'"),
        ({"password": "password"}, "x-password needs x-rate-limit: authentication"),
        ({"code": "code"}, "x-code needs x-rate-limit: authentication"),
        ({"events": ["thing.changed.v1"]}, "webhooks does not describe: thing.changed.v1"),
        ({"done_by": "magic"}, "x-done-by is 'magic'"),
        ({"done_by": "cell", "events": ["instance.ready.v1"]}, "there is none for its x-events"),
        ({"done_by": "reading"}, "for a GET that is audited"),
        ({"security": []}, "anyone may call it"),
        ({"security": [{"basic": []}]}, "unknown schemes: basic"),
    ],
)
def test_what_is_missing_or_unknown_is_named(changes: dict[str, Any], fault: str) -> None:
    check_document(only(ORG, "post"))
    with pytest.raises(DocumentRefused, match=r"things\.change") as refused:
        check_document(only(ORG, "post", **changes))
    assert fault in refused.value.faults[0]


def test_every_fault_of_the_document_is_given_at_once() -> None:
    whole = only(ORG, "post", audit=None, rate_limit=None)
    whole["paths"].update(only("/v1/things", "delete")["paths"])
    with pytest.raises(DocumentRefused) as refused:
        check_document(whole)
    assert len(refused.value.faults) == 3


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
