"""What somebody without a credential sends makes no line of its own in a log."""

import logging

import pytest
import structlog

from contract_tests.cell.rig import Rig
from gateway import log_lines
from gateway.log_lines import escape
from menagerie import logs

HOSTILE = "\x1b[31m\r\n2026-11-22 FAKE \x9b\u202e"


@pytest.mark.parametrize("path", ["zz%1b%5b31m%0d%0aFAKE", "zz%1b%5b31m%0d%0aFAKE/", "zz"])
def test_a_console_that_no_instance_has_is_not_found(shared_rig: Rig, path: str) -> None:
    answer = shared_rig.get(f"/console/{path}")
    assert answer.status_code == 404
    assert "FAKE" not in answer.text


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("log_format", ["json", "text"])
def test_control_characters_are_escaped_in_every_line(
    log_format: str, alone: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a part of the service, and as a cell that runs alone."""
    root = logging.getLogger()
    kept, level, former = root.handlers[:], root.level, structlog.get_config()
    try:
        if alone:
            log_lines.configure(log_format, "info")
        else:
            logs.configure(log_format)
        structlog.get_logger("own").warning(f"on {HOSTILE}")
        logging.getLogger("library").warning("on %s", HOSTILE)
        try:
            int(HOSTILE + HOSTILE)
        except ValueError:
            logging.getLogger("library").exception("failed %s", HOSTILE)
        written = capsys.readouterr().err
    finally:
        root.handlers[:], root.level = kept, level
        structlog.configure(**former)
    assert "FAKE" in written
    assert all(each.isprintable() for each in written.splitlines())
    assert not any(line.startswith("2026-11-22 FAKE") for line in written.splitlines())


def test_what_is_nested_is_escaped_too() -> None:
    event = escape(None, "", {"event": "x", "detail": {"a\n": ["b\r"]}, "count": 1})
    assert event == {"event": "x", "detail": {"a\\n": ["b\\r"]}, "count": 1}


def test_no_text_of_others_makes_a_long_line() -> None:
    """Whatever it is, and wherever it comes from."""
    long = {"path": "a" * 100_000, "errors": ["b" * 100_000]}
    event = escape(None, "", {"event": "c" * 100_000, "exception": "d\n" * 100_000, **long})
    assert event["path"].endswith("a… (100000 characters)")
    assert all(len(str(value)) < 70_000 for value in event.values())
    assert len(str(event["path"])) < 4_100
    assert len(str(event["errors"])) < 4_100
