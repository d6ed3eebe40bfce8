"""The policy of each operation, read from the document beside it; what is missing is refused."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from control.boundary import secret_members, subjects
from control.boundary.subjects import READING, Subject
from control.policy.permissions import ALL, TEAM
from specserver import Operation

METHODS: Final = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
RATES: Final = ("default", "unauthenticated", "authentication", "discovery", "device", "reveal")
# The document's security schemes, and the kind of caller each lets in.
SCHEMES: Final = {"api_key": "api_key", "dev_user": "session"}

# What x-authorize may say. Without a permission it is "none" (anyone who may come in) or "self"
# (a caller about itself).
_AUTHORIZE: Final[Mapping[str, frozenset[str]]] = {
    "permission": ALL | {"none", "self"},
    "scope": frozenset({"org", "team"}),
    "session": frozenset({"any", "user"}),
    # Beside the second factor itself: from whoever enrolled one and where the org asks it of all,
    # and the same of sessions alone.
    "assurance": frozenset({"none", "mfa", "second_factor", "step_up"}),
    "role": frozenset({"owner"}),
    # What a caller may do about itself in a session that is held to one organization.
    "sso": frozenset({"held", "refused"}),
}
ASKS: Final = (None, "sso_provider", "sso_sign_in")
"""What an operation may ask others before its transaction."""
# Who may do what an operation does, where it is not the transaction of the request.
_DOERS: Final = (None, "cell", "reading")


class DocumentRefused(Exception):  # noqa: N818 -- a fact about the document
    """Operations whose policy is missing or says nothing known; one line for each fault."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(["the document's policy is incomplete:", *faults]))
        self.faults = faults


@dataclass(frozen=True)
class Rule:
    """What the boundary holds one operation to."""

    permission: str
    session_only: bool
    assurance: str
    owner_only: bool
    audit: str | None
    rate: str
    events: frozenset[str]
    accepts: frozenset[str]
    optional: bool
    in_org: bool
    mutating: bool
    deletes: bool = False
    is_sso_refused: bool = False
    """Not for sessions that began by single sign-on, as it is about all that the person has."""
    outside: bool = False
    """A cell does it, or it only reads, before the transaction that records it; decision 0010."""
    password: str | None = None
    """The member of the body that is a password; it is verified before the transaction."""
    code: str | None = None
    """The member of the body that is a one-time code; how often it may be guessed is limited."""
    token: str | None = None
    """The member of the body that is a token of a letter; how often one is sent is limited."""
    asks: str | None = None
    """What is asked of others before the transaction, where no writer waits for an answer."""
    secret: frozenset[str] = frozenset()
    """Members of the body and of the answer that are written to no audit log and no event."""
    tells: bool = False
    """Whether its answer shows a secret once."""
    subjects: tuple[Subject, ...] = ()
    """The records that the path names, beside the organization."""

    @property
    def sensitive(self) -> bool:
        """What it answers is for the session that asked, and for no other of the same person."""
        return self.assurance != "none" or self.rate in ("authentication", "device", "reveal")

    @property
    def brief(self) -> bool:
        """Whether its response is repeated for a minute only: nothing but the key guards it.

        A step up guards nothing while there is no second factor, which the secret is about to be.
        """
        is_setting_up = self.assurance == "step_up" and self.rate == "authentication" and self.tells
        return self.sensitive and (self.assurance == "none" or is_setting_up)

    @property
    def leaves_records(self) -> bool:
        """Whether repeating it adds to what is kept for long; its rate does not bound that.

        Not what ends something, such as a key that was stolen: that must always be possible.
        """
        return self.audit is not None and self.rate == "default" and not self.deletes

    @property
    def writes(self) -> bool:
        """Reads that are audited write too."""
        return self.mutating or self.audit is not None


def rule_of(operation: Operation) -> Rule:
    """The operation's rule. Raises DocumentRefused rather than let one in that has none."""
    method, document = operation.method.upper(), operation.document
    faults = list(_faults(operation.path, method, document, operation.security))
    if faults:
        raise DocumentRefused([f"{operation.id}: {fault}" for fault in faults])
    authorize = document["x-authorize"]
    audit = document.get("x-audit")
    accepts = {SCHEMES[name] for one in operation.security for name in one}
    shown = secret_members.answered_by(document)
    return Rule(
        permission=authorize["permission"],
        session_only=authorize.get("session") == "user",
        assurance=authorize.get("assurance", "none"),
        owner_only=authorize.get("role") == "owner",
        audit=None if audit == "none" else audit,
        rate=document["x-rate-limit"],
        events=frozenset(document.get("x-events", ())),
        accepts=frozenset(accepts),
        optional={} in operation.security,
        in_org="{org_id}" in operation.path,
        mutating=method not in READING,
        deletes=method == "DELETE",
        is_sso_refused=_is_of_caller(operation.path, authorize) and authorize.get("sso") != "held",
        outside=document.get("x-done-by") is not None,
        password=document.get("x-password"),
        code=document.get("x-code"),
        token=document.get("x-token"),
        asks=document.get("x-asks"),
        secret=secret_members.names_of(document) | shown,
        tells=bool(shown),
        subjects=subjects.subjects_of(operation.path, method, document),
    )


def check_document(document: Mapping[str, Any]) -> None:
    """Raises DocumentRefused when an operation's policy is missing or names what there is not."""
    faults = [
        f"{operation.get('operationId', f'{method} {path}')}: {fault}"
        for path, item in document.get("paths", {}).items()
        for method, operation in item.items()
        if method in METHODS
        for fault in (
            *_faults(
                path,
                method.upper(),
                {**operation, "parameters": _parameters(item, operation)},
                operation.get("security", document.get("security", [])),
            ),
            *_event_faults(operation, document.get("webhooks", {})),
        )
    ]
    if faults:
        raise DocumentRefused(faults)


def _parameters(item: Mapping[str, Any], operation: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*item.get("parameters", ()), *operation.get("parameters", ())]


def _faults(
    path: str, method: str, extensions: Mapping[str, Any], security: list[dict[str, Any]]
) -> Iterator[str]:
    yield from subjects.faults(path, method, extensions)
    yield from _authorize_faults(path, extensions.get("x-authorize"), security)
    yield from _sso_faults(path, extensions.get("x-authorize"))
    yield from _reading_faults(method, extensions)
    audit = extensions.get("x-audit")
    if method not in READING and not isinstance(audit, str):
        yield "x-audit is missing"
    if audit == "none" and not extensions.get("x-audit-reason"):
        yield "x-audit is none, but x-audit-reason does not say why"
    if extensions.get("x-rate-limit") not in RATES:
        yield f"x-rate-limit is {extensions.get('x-rate-limit')!r}, not one of {', '.join(RATES)}"
    elif extensions.get("x-rate-limit") != "authentication":
        for guessed in ("x-password", "x-code", "x-token"):
            if guessed in extensions:
                yield f"{guessed} needs x-rate-limit: authentication, or its guesses go uncounted"
    yield from _asking_faults(method, extensions)
    if extensions.get("x-done-by") not in _DOERS:
        yield f"x-done-by is {extensions['x-done-by']!r}; the allowed values are cell and reading"
    elif extensions.get("x-done-by") and extensions.get("x-events"):
        yield "it is done before the transaction, so there is none for its x-events"
    elif extensions.get("x-done-by") == "reading" and (
        method not in READING or audit in (None, "none")
    ):
        yield "x-done-by is reading, which is for a GET that is audited"


def _event_faults(operation: Mapping[str, Any], described: Collection[str]) -> Iterator[str]:
    unknown = set(operation.get("x-events") or ()) - set(described)
    if unknown:
        yield f"x-events names what webhooks does not describe: {', '.join(sorted(unknown))}"


def _authorize_faults(path: str, authorize: Any, security: list[dict[str, Any]]) -> Iterator[str]:
    if not isinstance(authorize, Mapping):
        yield "x-authorize is missing"
        return
    for name, value in authorize.items():
        if name not in _AUTHORIZE:
            yield f"x-authorize says {name}, which is unknown"
        elif value not in _AUTHORIZE[name]:
            yield f"x-authorize: {name} is {value!r}, which does not exist"
    permission = authorize.get("permission")
    if permission is None:
        yield "x-authorize names no permission; say none or self where there is none"
    schemes = {name for one in security for name in one}
    if schemes - SCHEMES.keys():
        yield f"security names unknown schemes: {', '.join(sorted(schemes - SCHEMES.keys()))}"
    if not schemes and permission != "none":
        yield "anyone may call it, but x-authorize requires a permission"
    if permission in ALL and "{org_id}" not in path:
        yield f"{permission} is granted in an organization, but the path names none"
    if authorize.get("session") == "user" and "api_key" in schemes:
        yield "x-authorize requires a user session, but security allows API keys"
    yield from _scope_faults(permission, authorize.get("scope"))


def _asking_faults(method: str, extensions: Mapping[str, Any]) -> Iterator[str]:
    asks = extensions.get("x-asks")
    if asks not in ASKS:
        known = ", ".join(each for each in ASKS if each)
        yield f"x-asks is {asks!r}; the allowed values are {known}"
    elif asks and (method in READING or extensions.get("x-done-by")):
        yield "x-asks is for changes that a transaction makes"


def _sso_faults(path: str, authorize: Any) -> Iterator[str]:
    if not isinstance(authorize, Mapping):
        return
    if _is_of_caller(path, authorize) and "sso" not in authorize:
        yield "x-authorize does not say sso: held or refused, though it is of a caller about itself"
    elif "sso" in authorize and not _is_of_caller(path, authorize):
        yield "x-authorize says sso, which is for what is of a caller about itself"


def _is_of_caller(path: str, authorize: Mapping[str, Any]) -> bool:
    """Whether it is about the caller, and in no organization that a session can be held to."""
    return authorize.get("permission") == "self" and "{org_id}" not in path


def _reading_faults(method: str, extensions: Mapping[str, Any]) -> Iterator[str]:
    authorize = extensions.get("x-authorize")
    permission = str(authorize.get("permission")) if isinstance(authorize, Mapping) else ""
    changes = method not in READING and extensions.get("x-locks") != []
    if changes and permission.endswith(":read"):
        yield f"it changes something, and {permission} is to read; say x-locks: [] if it does not"


def _scope_faults(permission: Any, scope: str | None) -> Iterator[str]:
    held = "team" if permission in TEAM else "org"
    if permission in ALL and scope not in (None, held):
        yield f"{permission} is held in the {held}, so its scope is {held} and not {scope}"
