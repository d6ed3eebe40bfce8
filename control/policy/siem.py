"""What a target of a SIEM delivery must have."""

from collections.abc import Mapping
from typing import Any, Final

from control.policy.violations import Violation, wrong

_NEEDED: Final = {
    "webhook": ("url",),
    "s3": ("bucket", "region", "access_key_id", "secret_access_key"),
}
_OPTIONAL: Final = {"webhook": ("header_name", "header_value"), "s3": ("prefix", "endpoint")}
# What says how a request is to be read, and what is signed.
_RESERVED: Final = frozenset(
    {"connection", "expect", "host", "keep-alive", "te", "trailer", "upgrade"}
)
_RESERVED_PREFIXES: Final = ("content-", "proxy-", "svc-", "transfer-", "webhook-")


def check_target(target: Mapping[str, Any]) -> list[Violation]:
    """Everything wrong with its members, but for where its URLs lead."""
    kind = target["kind"]
    known = {*_NEEDED[kind], *_OPTIONAL[kind], "kind"}
    found = [
        wrong(f"target/{name}", "required", f"is needed for a target of the kind {kind}")
        for name in _NEEDED[kind]
        if name not in target
    ]
    found += [
        wrong(f"target/{name}", "kind", f"is not for a target of the kind {kind}: leave it out")
        for name in sorted(target.keys() - known)
    ]
    return found + (_check_header(target) if kind == "webhook" else _check_prefix(target))


def _check_prefix(target: Mapping[str, Any]) -> list[Violation]:
    """Its folders: those of other names are signed for by no library, and nothing is ever sent."""
    *folders, _begun = target.get("prefix", "").split("/")
    if not {"", ".", ".."}.intersection(folders):
        return []
    message = "must have names between its slashes, not `.` or `..`, and must not begin with one"
    return [wrong("target/prefix", "folders", message)]


def _check_header(target: Mapping[str, Any]) -> list[Violation]:
    given = [name for name in ("header_name", "header_value") if name in target]
    if len(given) == 1:
        message = f"{given[0]} needs header_name and header_value: give both or neither"
        return [wrong(f"target/{given[0]}", "required", message)]
    name = target.get("header_name", "").lower()
    if name in _RESERVED or name.startswith(_RESERVED_PREFIXES):
        message = "is a header that is set for each request; name one that the target asks for"
        return [wrong("target/header_name", "reserved", message)]
    return []
