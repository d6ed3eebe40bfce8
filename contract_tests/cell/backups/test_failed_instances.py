"""Backups of instances whose engine cannot start, or not read all of its data."""

import pymysql
import pytest

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


@pytest.mark.nightly
def test_what_cannot_be_read_is_told_and_keeps_nothing_else_from_being_backed_up(
    shared_rig: Rig,
) -> None:
    """Whoever had a credential for a moment can leave such a table."""
    mariadb = next(
        (
            each
            for each in shared_rig.get("/v1/cell").json()["engines"]
            if each["engine"] == "mariadb"
        ),
        None,
    )
    if mariadb is None:
        pytest.skip("no MariaDB on this machine")
    subject = shared_rig.make(engine="mariadb", engine_version=mariadb["versions"][0])
    route, secret = shared_rig.route(subject), shared_rig.reveal(subject)
    assert route is not None
    with (
        pymysql.connect(
            unix_socket=route["socket"],
            user=secret["username"],
            password=secret["password"],
            database="app",
        ) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("CREATE TABLE gone (a int) ENGINE=InnoDB")
        cursor.execute("ALTER TABLE gone DISCARD TABLESPACE")
    made = back_up(shared_rig, subject)
    assert made["verification"]["method"] == "checksums"
    assert "the table app.gone cannot be read" in made["verification"]["notice"]
