"""Preconditions (RFC 9110, section 13): whether a resource is still as the caller read it."""

import hashlib
import re
from typing import Any, Final

import orjson

from specserver import Reply
from specserver.problems import Problem

# A comma may be part of a tag, so a list is not split at commas.
_TAG: Final = re.compile(r'(W/)?("[^"]*")')


def etag(view: Any) -> str:
    """Another one for whatever a caller sees differently: it is made of all that they see."""
    return f'"{hashlib.blake2b(orjson.dumps(view), digest_size=12).hexdigest()}"'


def tagged(reply: Reply) -> Reply:
    """The reply, with the tag of the resource that it shows."""
    reply.headers["ETag"] = etag(reply.body)
    return reply


def check(if_match: str | None, current: str, resource: str) -> None:
    """Raises 412 where the caller read something else; a weak tag is never the same."""
    if if_match is None or if_match == "*":
        return
    if current not in {tag for weak, tag in _TAG.findall(if_match) if not weak}:
        raise Problem(
            412, f"{resource} has changed since you read it; get it again and send its new ETag"
        )


def unless_known(if_none_match: str | None, reply: Reply) -> Reply:
    """304 in place of the reply where the caller has it already; it has its tag."""
    current = reply.headers["ETag"]
    known = {tag for _, tag in _TAG.findall(if_none_match or "")}
    if if_none_match == "*" or current in known:
        return Reply(304, None, {"ETag": current})
    return reply
