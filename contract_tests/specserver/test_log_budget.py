"""Owns the proof that nobody fills the log with refusals, and that what is left out is told."""

from typing import Any

from structlog.testing import capture_logs

from contract_tests.specserver.calling import call, minimal, served
from menagerie.access import AccessLog
from specserver import Reply
from specserver.http_protocol import HttpProtocol
from specserver.log_budget import IN_ALL, OF_ONE, LogBudget
from specserver.problems import BadRequest


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_of_one_address_some_lines_are_written_and_the_others_are_summed() -> None:
    clock = Clock()
    budget = LogBudget(clock=clock)
    with capture_logs() as lines:
        for _ in range(OF_ONE + 50):
            budget.info("192.0.2.1", "refused")
        budget.info("192.0.2.2", "refused")
        assert len(lines) == OF_ONE + 1
        clock.now = 61
        budget.info("192.0.2.1", "refused")
    summed, last = lines[OF_ONE + 1 :]
    assert (summed["lines"], summed["most_by_address"]) == (50, {"192.0.2.1": 50})
    assert last["event"] == "refused"


def test_many_addresses_together_write_no_more_than_some() -> None:
    clock = Clock()
    budget = LogBudget(clock=clock)
    with capture_logs() as lines:
        for number in range(5_000):
            budget.info(f"2001:db8::{number:x}", "refused")
        assert len(lines) == IN_ALL
        clock.now = 61
        budget.info("192.0.2.1", "refused")
    assert lines[-2]["lines"] == 5_000 - IN_ALL
    assert len(lines[-2]["most_by_address"]) == 3


def test_what_is_no_request_fills_no_log() -> None:
    class Refusing(HttpProtocol):
        def __init__(self) -> None:  # as far as refusing needs it
            self.headers: list[tuple[bytes, bytes]] = []
            self.client = ("198.51.100.77", 1)
            self.server_state: Any = type("State", (), {"default_headers": []})

    with capture_logs() as lines:
        for _ in range(200):
            Refusing()._encode(BadRequest())
    assert len(lines) <= OF_ONE + 1


def test_a_line_of_the_access_log_has_some_of_a_long_path() -> None:
    app = AccessLog(served(minimal({}), lambda: Reply.ok({})))
    with capture_logs() as lines:
        call(app, "GET", "/" + "a" * 15_000)
    (line,) = [line for line in lines if line["event"] == "request"]
    assert line["path"] == "/" + "a" * 255 + "… (15001 characters)"
    assert len(repr(line)) < 600


def test_requests_refused_by_a_limit_fill_no_access_log() -> None:
    async def refusing(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 429, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    app = AccessLog(refusing, ["127.0.0.0/8"])
    with capture_logs() as lines:
        for number in range(200):
            address = f"192.0.2.{number % 2}"
            assert call(app, "GET", "/", headers={"x-forwarded-for": address}).status_code == 429
    assert len(lines) == 2 * OF_ONE


def test_requests_to_no_operation_fill_no_access_log() -> None:
    app = AccessLog(served(minimal({}), lambda: Reply.ok({})))
    with capture_logs() as lines:
        for _ in range(100):
            call(app, "GET", "/nowhere")
            call(app, "PUT", "/thing")
        assert len(lines) == OF_ONE
        for _ in range(100):
            call(app, "GET", "/thing")
    assert len(lines) == OF_ONE + 100
