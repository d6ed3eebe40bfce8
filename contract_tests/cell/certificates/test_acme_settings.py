"""What an installation is told of its ACME server: refused where it cannot be, shown, handed on."""

from dataclasses import fields
from pathlib import Path

import pytest

import cell.main
from cell.settings import CellSettings
from menagerie import data_plane, keys
from menagerie.errors import SettingsError
from menagerie.redaction import redacted
from menagerie.settings import Settings, load

DIRECTORY = "https://acme.example/directory"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("acme_directory", "http://acme.example/directory", "acme_directory"),
        ("acme_directory", "acme.example", "acme_directory"),
        ("acme_ca_file", "/nowhere/ca.pem", "acme_ca_file: /nowhere/ca.pem is not a file"),
    ],
)
def test_what_cannot_be_used_ends_the_start(
    tmp_path: Path, name: str, value: str, said: str
) -> None:
    with pytest.raises(SettingsError, match=said):
        load(home=tmp_path, **{name: value})


def test_the_key_of_a_binding_is_not_shown(tmp_path: Path) -> None:
    shown = redacted(load(home=tmp_path, acme_eab_key_id="kid", acme_eab_hmac_key="c2VjcmV0"))
    assert (shown["acme_eab_key_id"], shown["acme_eab_hmac_key"]) == ("kid", "***")
    settings = CellSettings(tmp_path, "cell_1", b"", acme_eab_hmac_key="c2VjcmV0")
    assert "c2VjcmV0" not in repr(settings)


def test_the_cell_gets_all_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    roots = tmp_path / "roots.pem"
    roots.touch()
    given = {
        "acme_directory": DIRECTORY,
        "acme_contact": "ops@example.com",
        "acme_terms_agreed": True,
        "acme_ca_file": str(roots),
        "acme_eab_key_id": "kid",
        "acme_eab_hmac_key": "c2VjcmV0",
    }
    assert set(given) == {name for name in Settings.model_fields if name.startswith("acme_")}
    settings = load(home=tmp_path, **given)
    keys.make_all(settings.root)
    got: list[CellSettings] = []
    monkeypatch.setattr(cell.main, "run", got.append)
    monkeypatch.setattr(data_plane, "loaded", lambda: None)
    data_plane.run_cell(settings)
    names = {each.name for each in fields(CellSettings)}
    assert {name: getattr(got[0], name) for name in given if name in names} == given
