"""Owns the check of replies against the document, for tests and development."""

from typing import Any

import orjson

from specserver.operations import Operation
from specserver.replies import Reply, is_json
from specserver.validation import Schema, Schemas

# The runtime answers these itself, for any operation, so a document need not repeat them.
_OF_THE_RUNTIME = frozenset({405, 406, 413, 415, 500})


class ReplyMismatchError(AssertionError):
    """A handler answered what the document does not say it can."""


class ReplyChecks:
    """Compiles response schemas as they are first needed."""

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas
        self._compiled: dict[tuple[str, str, str], Schema] = {}

    def check(self, operation: Operation, reply: Reply) -> None:
        responses = operation.document.get("responses", {})
        status = _status_key(responses, reply.status)
        if status is None:
            if reply.status in _OF_THE_RUNTIME:
                return
            raise ReplyMismatchError(
                f"{operation.id} answered {reply.status}, which it does not document"
            )
        self._check_headers(operation, responses[status], reply)
        self._check_body(operation, status, responses[status], reply)

    def _check_headers(self, operation: Operation, response: dict[str, Any], reply: Reply) -> None:
        sent = {name.lower() for name in reply.headers} | {"x-request-id", "content-type"}
        for name, header in response.get("headers", {}).items():
            if header.get("required") and name.lower() not in sent:
                raise ReplyMismatchError(f"{operation.id} answered {reply.status} without {name}")

    def _check_body(
        self, operation: Operation, status: str, response: dict[str, Any], reply: Reply
    ) -> None:
        content = response.get("content")
        if not content:
            if reply.has_body:
                raise ReplyMismatchError(f"{operation.id} answered {reply.status} with a body")
            return
        found = _content_key(content, reply.media_type)
        if found is None:
            raise ReplyMismatchError(
                f"{operation.id} answered {reply.status} as {reply.media_type}, not documented"
            )
        if reply.chunks is not None or not is_json(reply.media_type):
            return
        schema = self._schema(operation, status, found, content[found].get("schema", True))
        # Checked as the client will read it, after encoding.
        violations = schema.violations(orjson.loads(reply.encode() or b"null"))
        if violations:
            raise ReplyMismatchError(
                f"{operation.id} answered {reply.status} that breaks: {violations}"
            )

    def _schema(self, operation: Operation, status: str, media_type: str, schema: Any) -> Schema:
        key = (operation.id, status, media_type)
        if key not in self._compiled:
            self._compiled[key] = self._schemas.of(schema)
        return self._compiled[key]


def _status_key(responses: dict[str, Any], status: int) -> str | None:
    for key in (str(status), f"{status // 100}XX", "default"):
        if key in responses:
            return key
    return None


def _content_key(content: dict[str, Any], media_type: str) -> str | None:
    plain = media_type.partition(";")[0].strip().lower()
    for key in content:
        documented = key.partition(";")[0].strip().lower()
        if documented in (plain, plain.partition("/")[0] + "/*", "*/*"):
            return key
    return None
