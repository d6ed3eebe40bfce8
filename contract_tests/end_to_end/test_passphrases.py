"""The passphrase of an installation's backups: where it comes from, and what it takes to guess it.

And which of the backups in a store are kept.
"""

import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from ulid import ULID

from cell.backups import sealed_objects
from cell.backups.manifest import BackupName
from menagerie.errors import SettingsError
from menagerie.recovery import backing_up, passphrases
from menagerie.recovery.passphrases import KeyDerivation
from menagerie.settings import load

PASSPHRASE = "correct horse battery staple"


@pytest.mark.nightly
def test_a_key_takes_as_much_to_make_as_is_recommended() -> None:
    """OWASP's cheat sheet for scrypt: N=2^17, r=8, p=1."""
    told, key = KeyDerivation.new(PASSPHRASE)
    assert (told.kdf, told.n, told.r, told.p) == ("scrypt", 1 << 17, 8, 1)
    assert KeyDerivation.parse(told.written()).key(PASSPHRASE) == key
    assert key.hex() not in told.written().decode()


@pytest.fixture(scope="module")
def written() -> bytes:
    """What a file says of a key, which takes half a second to make."""
    return KeyDerivation.new(PASSPHRASE)[0].written()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"n": 1 << 40}, "made in a way"),
        ({"n": 0}, "made in a way"),
        ({"n": 3}, "made in a way"),
        ({"n": 4.0}, "made in a way"),
        ({"check": 5}, "does not say how"),
        ({"check": "ä"}, "does not say how"),
        ({"r": 1 << 20}, "made in a way"),
        ({"kdf": "none"}, "made in a way"),
        ({"salt": "zz"}, "does not say how"),
        ({"more": 1}, "does not say how"),
    ],
)
def test_no_file_says_how_much_memory_its_key_takes(
    written: bytes, changes: dict[str, Any], reason: str
) -> None:
    told = json.loads(written)
    with pytest.raises(sealed_objects.DamagedError, match=reason):
        KeyDerivation.parse(json.dumps(told | changes).encode())


def names(moments: Iterator[datetime]) -> list[BackupName]:
    return [BackupName("installation/cell_x", f"ibk_{ULID.from_datetime(at)}") for at in moments]


def test_the_newest_are_kept_and_the_last_of_each_day() -> None:
    now = datetime(2026, 11, 26, 12, tzinfo=UTC)
    hourly = names(now - timedelta(hours=back) for back in reversed(range(24 * 30)))
    gone = set(backing_up.superfluous(hourly))
    kept = [each for each in hourly if each not in gone]
    assert kept[-12:] == hourly[-12:]
    ages = [now - ULID.from_str(each.backup_id[4:]).datetime for each in kept]
    assert len(kept) == backing_up.KEPT_NEWEST + backing_up.KEPT_DAYS - 1
    assert timedelta(days=12) < max(ages) < timedelta(days=14)
    assert backing_up.superfluous(hourly[:12]) == []


def test_a_passphrase_is_told_by_a_file_the_environment_or_a_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = tmp_path / "one"
    one.write_text(f"{PASSPHRASE} 1\n")
    settings = load(home=tmp_path, installation_backup_passphrase_file=str(one))
    assert passphrases.find(settings, None, is_new=True) == f"{PASSPHRASE} 1"
    monkeypatch.setenv(passphrases.VARIABLE, f"{PASSPHRASE} 2")
    settings = load(home=tmp_path)
    assert passphrases.find(settings, None, is_new=True) == f"{PASSPHRASE} 2"
    assert passphrases.find(settings, one, is_new=True) == f"{PASSPHRASE} 1"
    one.write_text("short")
    with pytest.raises(SettingsError, match="has 5 characters; choose one of at least 12"):
        passphrases.find(settings, one, is_new=True)
    assert passphrases.find(settings, one, is_new=False) == "short"
    one.write_text("\n")
    with pytest.raises(SettingsError, match="must have one line"):
        passphrases.find(settings, one, is_new=False)
    with pytest.raises(SettingsError, match="cannot be read from"):
        passphrases.find(settings, tmp_path / "none", is_new=False)
    monkeypatch.delenv(passphrases.VARIABLE)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    with pytest.raises(SettingsError, match="there is no passphrase: pass --passphrase-file"):
        passphrases.find(load(home=tmp_path), None, is_new=False)
