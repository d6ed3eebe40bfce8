"""What an installation is told of its backups: refused where it cannot be, and handed on."""

from pathlib import Path
from typing import Any

import pytest

import cell.main
from cell.settings import CellSettings
from menagerie import data_plane, keys
from menagerie.errors import SettingsError
from menagerie.settings import Settings, load

# The same in each worker, as it is in the names of tests.
RECIPIENT = "age13yh4jzpykkfsfdmmzzczlx09nl28hytu9vds8ca8eckkqa75p4dqt4l86m"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("backup_store_url", "https://example.com/backups"),
        ("backup_store_url", "file://relative/backups"),
        ("backup_store_url", "s3://"),
        ("backup_copy_store_url", "https://example.com/backups"),
        ("backup_recovery_recipient", "age1none"),
        ("backup_recovery_recipient", RECIPIENT[:-1] + ("q" if RECIPIENT[-1] != "q" else "p")),
        ("backup_verify_bytes_max", -1),
        ("backup_increments_max", -1),
        ("backup_increments_max", 101),
        ("backup_bytes_per_s", -1),
        ("backup_bytes_per_s", 999_999),
    ],
)
def test_what_cannot_be_used_ends_the_start(tmp_path: Path, name: str, value: Any) -> None:
    with pytest.raises(SettingsError, match=name):
        load(home=tmp_path, **{name: value})


@pytest.mark.parametrize(
    "given",
    [
        {},
        {
            "backup_store_url": "s3://bucket/prefix",
            "backup_copy_store_url": "s3://another/prefix",
            "backup_recovery_recipient": RECIPIENT,
            "backup_verify_bytes_max": 5,
            "backup_increments_max": 0,
            "backup_bytes_per_s": 1_000_000,
        },
    ],
)
def test_the_cell_gets_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any]
) -> None:
    names = {name for name in Settings.model_fields if name.startswith("backup_")}
    settings = load(home=tmp_path, **given)
    keys.make_all(settings.root)
    got: list[CellSettings] = []
    monkeypatch.setattr(cell.main, "run", got.append)
    monkeypatch.setattr(data_plane, "loaded", lambda: None)
    data_plane.run_cell(settings)
    default = {
        "backup_store_url": (tmp_path / "backups").as_uri(),
        "backup_copy_store_url": "",
        "backup_recovery_recipient": "",
        "backup_verify_bytes_max": 10**10,
        "backup_increments_max": 7,
        "backup_bytes_per_s": 0,
    }
    assert default.keys() == names
    assert {name: getattr(got[0], name) for name in names} == default | given


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("s3://bucket/a", "s3://bucket/a/"),
        ("s3://bucket", "s3://bucket/a"),
        ("file:///srv/copies/first", "file:///srv/copies"),
        ("", "HOME/backups"),
    ],
)
def test_a_store_within_the_other_is_no_second_one(tmp_path: Path, first: str, second: str) -> None:
    url = second.replace("HOME", tmp_path.as_uri())
    with pytest.raises(SettingsError, match="neither within"):
        load(home=tmp_path, backup_store_url=first, backup_copy_store_url=url)
    load(home=tmp_path, backup_store_url="s3://bucket/a", backup_copy_store_url="s3://bucket/ab")
