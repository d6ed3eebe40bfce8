"""Backups of an installation, beside what somebody else has put into the store."""

import time
from pathlib import Path

import pytest
from ulid import ULID

from contract_tests.end_to_end.test_installation_backups import PASSPHRASE, make_home, recover
from menagerie.recovery import backing_up, passphrases


@pytest.fixture(autouse=True)
def _keys_are_made_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passphrases, "COST", 2)


def test_what_somebody_puts_into_a_store_is_no_backup(tmp_path: Path) -> None:
    """It keeps none from being made or found, removes none, and is not told to a terminal."""
    settings = make_home(tmp_path / "home")
    first, second = tmp_path / "store", tmp_path / "copies"
    first.mkdir()
    second.mkdir()
    urls = {"backup_store_url": first.as_uri(), "backup_copy_store_url": second.as_uri()}
    stored = settings.model_copy(update=urls)
    made = [backing_up.into_store(stored, PASSPHRASE, "manual")]
    (own,) = (first / "installation").iterdir()
    late = str(ULID.from_timestamp(time.time() + 40 * 86_400))
    names = [f"ibk_{late[:-2]}{number:02}" for number in range(20)]
    for name in (*names, "ibk_junk", "ibk_\x1b[2J", "other"):
        (own / name).mkdir()
        (own / name / "manifest").write_bytes(b"of somebody else's making")
    made.append(backing_up.into_store(stored, PASSPHRASE, "manual"))
    for store in (first, second):
        kept = {path.parent.name for path in store.rglob("manifest")}
        assert {each.backup_id for each in made} <= kept
    found = recover(first.as_uri(), tmp_path / "other", backup_id=made[-1].backup_id)
    assert found.made_at == made[-1].made_at
