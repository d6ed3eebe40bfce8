"""What the control plane's document says beside each operation: who may, audit, limits, events."""

import re
from collections.abc import Iterator

from control.boundary import DocumentRefused, check_document, secret_members
from tools.document_rules.reading import Fault, Json, Operation, Text

BODY_OF_ANYONE_MAX = 16_384
_PROBLEM = "application/problem+json"
# A referral code is there to be passed on.
_SECRET = re.compile(r"(^|_)(password|passphrase|secret|token|private_key|(?<!referral_)code)$")
_UNSCOPED = frozenset({"none", "self"})
# Operations whose names begin so take something away, as every DELETE does.
_DESTRUCTIVE: tuple[str, ...] = (
    *("close", "delete", "drop", "erase", "load", "overwrite", "purge", "remove"),
    *("restore", "revoke", "truncate", "wipe"),
)
# What lets somebody in: to the organization, through the network, or with what is handed out.
_OPENING = frozenset(
    {
        *("members:write", "network:write", "api-keys:write", "console:open"),
        *("credentials:reveal", "credentials:rotate", "data:export"),
    }
)
_OPENING_NOUNS = frozenset({"domains", "network", "team_members"})
_OPENING_VERBS: tuple[str, ...] = ("allow", "grant", "invite", "permit", "share")


def check(text: Text) -> Iterator[Fault]:
    try:
        check_document(text.spec)
    except DocumentRefused as refused:
        for fault in refused.faults:
            place, _, message = fault.partition(": ")
            yield Fault(place, message)
    for operation in text.operations:
        yield from _policy(operation)
        yield from _body(operation)
        yield from _statuses(operation)
        yield from _confirmation(operation)
        yield from _assurance(operation)
        yield from _waiting(operation, {one.id for one in text.operations})
        yield from _headers(operation)
        yield from _secrets(operation)


def _policy(operation: Operation) -> Iterator[Fault]:
    for name in ("x-authorize", "x-audit", "x-rate-limit", "x-events"):
        if name not in operation.document:
            yield operation.fault(f"say {name}")
    authorize = operation.document.get("x-authorize", {})
    if authorize.get("permission") not in _UNSCOPED and "scope" not in authorize:
        yield operation.fault("x-authorize: say whether the scope is org or team")
    schemes = {name for one in operation.document.get("security", ()) for name in one}
    if authorize.get("session") == "user" and schemes != {"dev_user"}:
        yield operation.fault("it is for user sessions, so its security is dev_user alone")
    if schemes == {"dev_user"} and authorize.get("session") != "user":
        yield operation.fault("its security is dev_user alone: x-authorize {session: user}")


def _body(operation: Operation) -> Iterator[Fault]:
    """What anyone may send is small: it is held in memory before it is known who sends it."""
    security = operation.document.get("security", [{"api_key": []}])
    anyone = not security or {} in security
    most = operation.document.get("x-max-body-bytes", BODY_OF_ANYONE_MAX + 1)
    reason = operation.document.get("x-max-body-reason")
    if anyone and "requestBody" in operation.document and most > BODY_OF_ANYONE_MAX and not reason:
        yield operation.fault(
            f"anyone may call it: x-max-body-bytes of {BODY_OF_ANYONE_MAX}, or an x-max-body-reason"
        )


def _confirmation(operation: Operation) -> Iterator[Fault]:
    """What cannot be undone says what is lost; clients ask before they send it."""
    said, reason = (operation.document.get(f"x-confirm{one}") for one in ("", "-reason"))
    if said is None and _takes_away(operation):
        yield operation.fault("x-confirm: say what is lost, or none with an x-confirm-reason")
    if said == "none" and not reason:
        yield operation.fault("x-confirm is none, and x-confirm-reason does not say why")
    if said not in {None, "none"} and not str(said).endswith("."):
        yield operation.fault("x-confirm: write sentences; clients show them to a person")


def _assurance(operation: Operation) -> Iterator[Fault]:
    """A password or a session that was stolen must not be enough for what is powerful."""
    asked = operation.document.get("x-authorize", {}).get("assurance", "none") != "none"
    reason = operation.document.get("x-assurance-reason")
    powerful = _takes_away(operation) or _lets_in(operation)
    if powerful and not asked and not reason:
        yield operation.fault(
            "it destroys data, widens access or hands out credentials: x-authorize {assurance},"
            " or an x-assurance-reason"
        )
    if reason and asked:
        yield operation.fault("x-assurance-reason says why there is no assurance, and there is")


def _takes_away(operation: Operation) -> bool:
    verb = operation.id.partition(".")[2]
    destructive = operation.method == "DELETE" or verb.startswith(_DESTRUCTIVE)
    return destructive and operation.method != "GET"


def _lets_in(operation: Operation) -> bool:
    noun, _, verb = operation.id.partition(".")
    opens = (
        operation.document.get("x-authorize", {}).get("permission") in _OPENING
        or noun in _OPENING_NOUNS
        or verb.startswith(_OPENING_VERBS)
        or bool(secret_members.names_of(operation.document))
    )
    shows = bool(secret_members.answered_by(operation.document))
    return (
        shows or any(map(_SECRET.search, _told(operation))) or (opens and operation.method != "GET")
    )


def _waiting(operation: Operation, known: set[str]) -> Iterator[Fault]:
    said = operation.document.get("x-wait")
    if said is None:
        return
    whole = isinstance(said, dict) and {"operation", "until"} <= set(said)
    if not whole or set(said) - {"operation", "until", "unless"}:
        yield operation.fault("x-wait: say the operation, until what, and unless what")
    elif said["operation"] not in known:
        yield operation.fault(f"x-wait: there is no operation {said['operation']}")


def _statuses(operation: Operation) -> Iterator[Fault]:
    for status, response in operation.failures.items():
        if set(response.get("content", {})) != {_PROBLEM}:
            yield operation.fault(f"its {status} is a {_PROBLEM}")


def _headers(operation: Operation) -> Iterator[Fault]:
    sent = {one["name"] for one in operation.parameters("header")}
    if operation.method == "POST" and "Idempotency-Key" not in sent:
        yield operation.fault("a POST takes Idempotency-Key")
    for status, response in operation.responses.items():
        if "X-Request-Id" not in response.get("headers", {}):
            yield operation.fault(f"its {status} carries X-Request-Id")


def _secrets(operation: Operation) -> Iterator[Fault]:
    """What nobody may see again is marked, which keeps it from audit log and events."""
    content = operation.document.get("requestBody", {}).get("content", {})
    secret = secret_members.names_of(operation.document)
    called = {name for one in content.values() for name in _members(one.get("schema", {}))}
    meant = (operation.document.get("x-password"), operation.document.get("x-code"))
    for name in sorted(called - secret):
        if name in meant or _SECRET.search(name):
            yield operation.fault(f"{name} is a secret: make it writeOnly")
    shown = secret_members.answered_by(operation.document)
    for name in sorted(_told(operation) - shown):
        if _SECRET.search(name):
            yield operation.fault(f"{name} of its answer is a secret: x-secret: true")


def _told(operation: Operation) -> set[str]:
    """The names of what a success says."""
    contents = (one.get("content", {}).values() for one in operation.successes.values())
    return {name for each in contents for one in each for name in _members(one.get("schema", {}))}


def _members(schema: Json) -> Iterator[str]:
    for name, member in schema.get("properties", {}).items():
        yield name
        yield from _members(member)
