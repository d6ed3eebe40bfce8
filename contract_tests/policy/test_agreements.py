"""Which texts are an agreement, and that a version names one text and no other."""

import hashlib
from pathlib import Path

import pytest

from control.policy.agreements import BYTES_MAX, Agreement, template
from menagerie.errors import SettingsError
from menagerie.settings import load

DATED = "# BAA\n\nDate: 2027-01-01\n"


def test_a_version_is_the_date_and_the_hash_of_the_text() -> None:
    sha256 = hashlib.sha256(DATED.encode()).hexdigest()
    assert Agreement.of(DATED).version == f"2027-01-01-{sha256}"
    assert Agreement.of(f"{DATED} ").version != Agreement.of(DATED).version


def test_the_text_that_is_shipped_says_that_it_is_a_template() -> None:
    assert template().is_template
    assert "This text is a template" in template().text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("# BAA", "has no line `Date: 2026-11-29`"),
        ("Date: tomorrow", "has no line `Date: 2026-11-29`"),
        (f"{DATED}\0", "NUL"),
        (DATED + "a" * BYTES_MAX, "more than 200000 bytes"),
    ],
)
def test_what_is_no_agreement(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Agreement.of(text)


def test_a_setting_names_a_file_with_an_agreement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "baa.md"
    monkeypatch.setenv("MENAGERIE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MENAGERIE_BAA_TEXT", str(path))
    for content in (b"\xff", b"no date"):
        path.write_bytes(content)
        with pytest.raises(SettingsError, match="baa_text"):
            load()
    path.write_text(DATED)
    assert load().baa_text == str(path)
