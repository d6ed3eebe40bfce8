"""Which files are public keys of scanners, and what may be shown of a place."""

import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from contract_tests.api.leaks import KEY_ID, pem
from control.policy.leak_reports import KEYS_MAX, place_of, read_keys
from menagerie.errors import SettingsError
from menagerie.settings import load


def listed(*keys: tuple[str, str]) -> str:
    """As GitHub answers them."""
    found = [{"key_identifier": name, "key": key, "is_current": True} for name, key in keys]
    return json.dumps({"public_keys": found})


def other_pem(private: Any) -> str:
    form = (Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return str(private.public_key().public_bytes(*form).decode())


def test_keys_are_read_as_github_gives_them() -> None:
    assert read_keys(listed((KEY_ID, pem()))) == {KEY_ID: pem()}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it is not as"),
        ("[]", "it is not as"),
        ('{"public_keys": 7}', "it is not as"),
        ('{"public_keys": [{"key": "x"}]}', "it is not as"),
        (listed(), "it has 0 keys"),
        (listed(*((str(n), pem()) for n in range(KEYS_MAX + 1))), "it has 101 keys"),
        (listed(("a", "x")), "the key a is no public key of ECDSA P-256"),
        (listed(("a", other_pem(ec.generate_private_key(ec.SECP384R1())))), "the key a is no"),
        (listed(("a", other_pem(rsa.generate_private_key(65537, 2048)))), "the key a is no"),
    ],
    ids=range(9),
)
def test_what_are_no_keys(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_keys(text)


def test_a_setting_names_a_file_with_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "scanners.json"
    monkeypatch.setenv("MENAGERIE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MENAGERIE_LEAK_REPORT_KEYS", str(path))
    with pytest.raises(SettingsError, match=r"leak_report_keys: .* cannot be read"):
        load()
    path.write_text("{}")
    with pytest.raises(SettingsError, match=r"leak_report_keys: .* it is not as"):
        load()
    path.write_text(listed((KEY_ID, pem())))
    assert load().leak_report_keys == str(path)


@pytest.mark.parametrize(
    ("match", "place"),
    [
        ({"source": "content", "url": "https://x/y"}, ("content", "https://x/y")),
        ({"source": "a b", "url": "https://x\r\ny\x1b"}, ("unknown", "https://xy")),
        ({"source": "content\n"}, ("unknown", "")),
        ({"url": "a" * 2_000}, ("unknown", "a" * 1_000)),
    ],
)
def test_a_place_is_shown_without_what_cannot_be_printed(
    match: dict[str, str], place: tuple[str, str]
) -> None:
    assert place_of(match) == place
