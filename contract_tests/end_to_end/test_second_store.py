"""A host is lost together with its store of backups: all comes back from the second store."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from contract_tests.cell.rig import until
from contract_tests.end_to_end.engine_clients import connect
from contract_tests.end_to_end.installation import Installation, order, wait_for
from contract_tests.end_to_end.test_engines import place_of, read
from contract_tests.end_to_end.test_lost_host import command, take_away

PASSPHRASE = "a passphrase that is in no log"


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[tuple[Installation, Installation]]:
    """The second one has another store, which is empty, and the same second store."""
    made = []
    for name in ("first", "second"):
        (tmp_path / f"{name}-store").mkdir()
        surroundings = {
            "MENAGERIE_BACKUP_STORE_URL": (tmp_path / f"{name}-store").as_uri(),
            "MENAGERIE_BACKUP_COPY_STORE_URL": (tmp_path / "copies").as_uri(),
        }
        made.append(Installation(tmp_path / name, surroundings))
    (tmp_path / "copies").mkdir()
    (tmp_path / "passphrase").write_text(f"{PASSPHRASE}\n")
    yield made[0], made[1]
    for each in made:
        each.destroy()


def told(host: Installation, path: str) -> dict[str, Any]:
    with host.api() as api:
        answer = api.get(path)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_what_was_copied_comes_back(
    hosts: tuple[Installation, Installation], tmp_path: Path
) -> None:
    first, second = hosts
    first.start()
    instance = order(first, engine="valkey", name="cache")
    one = f"/v1/orgs/{first.endpoints['org_id']}/instances/{instance['id']}"
    with first.api() as api:
        chosen = api.patch(f"{one}/backup-settings", json={"copy_target": "second_store"})
        assert chosen.status_code == 200, chosen.text
    with connect("valkey", place_of(first, instance["id"])) as session:
        session.make()
        session.write([1, 2, 3])
    with first.api() as api:
        made = api.post(f"{one}/backups", json={}).json()
    until(lambda: told(first, f"{one}/backups/{made['id']}")["copied_at"], "it is copied", 120)
    until(
        lambda: told(first, f"{one}/backup-settings")["copies"]["backups_copied"] == 1,
        "the settings tell of it",
    )
    words = ("--passphrase-file", str(tmp_path / "passphrase"))
    environment = {**first.environment, "MENAGERIE_HOME": str(first.home)}
    done = command("backup", *words, **environment)
    assert done.returncode == 0, done.stderr
    take_away(first)
    shutil.rmtree(tmp_path / "first-store")

    source = (tmp_path / "copies").as_uri()
    recover = ("recover", "--from", source, "--home", str(second.home))
    done = command(*recover, *words, **second.environment)
    assert done.returncode == 0, done.stderr
    assert f"from {made['id']} of" in done.stdout
    assert f"the second store is {source}" in done.stdout
    second.start()
    wait_for(second, instance["id"], "running")
    assert read("valkey", place_of(second, instance["id"])) == [1, 2, 3]
    (restore,) = told(second, f"{one}/restores")["items"]
    assert (restore["backup_id"], restore["from_copy"]) == (made["id"], True)
