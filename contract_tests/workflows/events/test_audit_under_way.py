"""The audit log is verified while a record of it is being published."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from contract_tests.workflows.events.test_audit_publishing import Log, log
from menagerie import audit_verify
from menagerie.audit_logs import lines_in
from storage.events import audit_publications

__all__ = ["log"]


def test_a_record_that_is_being_published_is_not_missing(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is committed first, and written to the log then: as it is verified in between."""
    log.write(6)
    (place,) = log.stage.services.audit_logs
    keep = place.keep
    read = lines_in
    with monkeypatch.context() as patched:
        patched.setattr(place, "keep", lambda _newest_first: 0)
        log.append()
        log.run("audit.seal")
        log.run("audit.publish")
    looked: list[Path] = []

    def read_and_then_published(path: Path) -> Iterator[str]:
        looked.append(path)
        yield from read(path)
        with log.stage.database.read() as db:
            keep(audit_publications.newest_first(db))

    monkeypatch.setattr(audit_verify, "lines_in", read_and_then_published)
    found = log.verified()
    assert found.findings == []
    assert len(looked) == 2
