"""`serve` backs the installation up regularly, tells what keeps it from that, and tries again."""

import subprocess
from pathlib import Path

import pytest

from contract_tests.cell.rig import until
from contract_tests.end_to_end.test_installation_backups import PASSPHRASE, make_home
from menagerie.recovery import archives, schedule
from menagerie.recovery.schedule import ScheduledBackups, backups_made
from menagerie.settings import Settings, load

EVERY_S = 100_000


def stored(folder: Path) -> int:
    return len(list((folder / "store" / "installation").rglob("manifest")))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    root = make_home(tmp_path / "home").root
    (tmp_path / "passphrase").write_text(PASSPHRASE)
    return load(
        home=root,
        backup_store_url=(tmp_path / "store").as_uri(),
        installation_backup_passphrase_file=str(tmp_path / "passphrase"),
        installation_backup_every_s=EVERY_S,
    )


def is_over(backups: ScheduledBackups) -> bool:
    backups.tend()
    return backups.process is None


@pytest.mark.nightly
def test_one_is_made_when_it_is_due_and_a_failed_one_again_soon(
    settings: Settings, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with backups_made(settings) as backups:
        backups.tend()
        assert backups.process is None, "engines start first"
        backups.due_at = 0.0
        backups.tend()
        # The store is not there yet.
        until(lambda: is_over(backups), "it has failed")
        assert backups.due_at - backups.began < EVERY_S - 1
        (tmp_path / "store").mkdir()
        backups.due_at = 0.0
        backups.tend()
        until(lambda: is_over(backups), "it is made")
        assert stored(tmp_path) == 1
        assert backups.due_at - backups.began > EVERY_S - 1
    said = "".join(capfd.readouterr())
    assert "menagerie backup: the folder of the store of backups is missing" in said
    assert "installation backup failed" in said
    assert PASSPHRASE not in said


def test_without_a_passphrase_none_is_made(settings: Settings) -> None:
    told = settings.model_copy(update={"installation_backup_passphrase_file": ""})
    backups = ScheduledBackups(told, due_at=0.0)
    backups.tend()
    assert backups.process is None


def test_it_ends_with_the_service_and_one_that_hangs_is_ended(settings: Settings) -> None:
    with backups_made(settings) as backups:
        backups.process = subprocess.Popen(["sleep", "600"])
        backups.began = -2 * schedule.STUCK_S
        until(lambda: is_over(backups), "it is ended")
        backups.process = hanging = subprocess.Popen(["sleep", "600"])
        backups.began = float("inf")
    assert hanging.poll() is not None


def test_its_names_tell_whose_they_are(settings: Settings) -> None:
    cell_id = (settings.root / "keys" / "cell.id").read_text()
    assert archives.new_name(cell_id).manifest.startswith(f"installation/{cell_id}/ibk_")
