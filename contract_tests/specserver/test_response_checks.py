"""Owns the proof that, where asked for, replies are held to the document."""

from typing import Any

import pytest
import structlog

from contract_tests.specserver.calling import call, minimal, served
from specserver import Conflict, Reply

RESPONSES = {
    "200": {
        "description": "A thing.",
        "headers": {"X-Count": {"required": True, "schema": {"type": "integer"}}},
        "content": {"application/json": {"schema": {"type": "object", "required": ["id"]}}},
    },
    "204": {"description": "Nothing."},
    "4XX": {"description": "Refused.", "content": {"application/problem+json": {}}},
}
GOOD = Reply(200, {"id": 1}, {"X-Count": "1"})


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (GOOD, None),
        (Reply(204), None),
        (Reply(200, {"id": 1}), "without X-Count"),
        (Reply(200, {}, {"X-Count": "1"}), "required"),
        (Reply(200, "id", {"X-Count": "1"}, "text/plain"), "as text/plain"),
        (Reply(201, {"id": 1}), "answered 201"),
        (Reply(204, None), None),
        (Conflict("no"), None),
        (Reply(500, {}), None),
    ],
)
def test_a_reply_the_document_does_not_allow_is_a_500(reply: Any, reason: str | None) -> None:
    def handler() -> Reply:
        if isinstance(reply, Exception):
            raise reply
        answer: Reply = reply
        return answer

    app = served(minimal({"responses": RESPONSES}), handler, validate_responses=True)
    with structlog.testing.capture_logs() as logs:
        answer = call(app, "GET", "/thing")
    if reason is None:
        assert answer.status_code == reply.status
        assert logs == []
    else:
        assert answer.status_code == 500
        assert reason not in answer.text
        assert reason in logs[0]["exception"]


def test_nothing_is_checked_unless_asked_for() -> None:
    app = served(minimal({"responses": RESPONSES}), lambda: Reply(201, {}))
    assert call(app, "GET", "/thing").status_code == 201
