"""What the audit log tells of a change: values that differ, and of lists and maps their numbers."""

from datetime import UTC, datetime
from types import SimpleNamespace

from control.boundary import AuditedChanges
from control.boundary.audited_changes import TEXT_MAX

AT = datetime(2026, 11, 30, 7, 30, tzinfo=UTC)


def test_only_what_differs_is_told() -> None:
    record = SimpleNamespace(require_mfa=False, name="Shop", hidden=1)
    changes = AuditedChanges.of(record, {"require_mfa": True, "name": "Shop"})
    assert changes.told() == {}
    record.require_mfa, record.hidden = True, 2
    assert changes.told() == {"require_mfa": {"from": False, "to": True}}


def test_of_lists_and_maps_only_their_numbers_are_told_and_long_texts_are_cut() -> None:
    before = {"domains": ["a"], "terms": None, "text": "", "at": None}
    after = {"domains": ["b"], "terms": {"x": 1, "y": 2}, "text": "z" * 999, "at": AT}
    assert AuditedChanges.between(before, after).told() == {
        "domains": {"from": 1, "to": 1},
        "terms": {"from": None, "to": 2},
        "text": {"from": "", "to": "z" * TEXT_MAX},
        "at": {"from": None, "to": "2026-11-30T07:30:00.000Z"},
    }
