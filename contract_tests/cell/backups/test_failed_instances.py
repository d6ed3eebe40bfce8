"""Backups of instances whose engine cannot start."""

from contract_tests.cell.backups.backup_calls import asked, back_up
from contract_tests.cell.rig import Rig


def test_what_cannot_start_is_backed_up_all_the_same(light_rig: Rig) -> None:
    """Or no change that would help could be made: each begins with a backup."""
    subject = light_rig.make()
    light_rig.action(subject, "pause")
    log_folder = light_rig.home / "instances" / subject / "data" / "appendonlydir"
    manifest = next(log_folder.glob("*.manifest"))
    right = manifest.read_text()
    manifest.write_text("this is not a manifest\n")
    assert asked(light_rig, subject, "resume", None).status_code == 503
    light_rig.status_is(subject, "failed")
    made = back_up(light_rig, subject, "pre_change")
    assert made["verification"]["method"] == "checksums"
    manifest.write_text(right)
    light_rig.action(subject, "resume")
    assert back_up(light_rig, subject)["verification"]["method"] == "restored"
