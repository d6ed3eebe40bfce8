"""A host is lost with everything on it: the installation is recovered on another, from the store.

Each row that was acknowledged before the backups is there; hosts, owners and keys are the same; no
former credential works, and there are new ones. docs/disaster-recovery.md has it as commands, which
are pasted here at night.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from contract_tests.bucket_server import BUCKET, bucket_server
from contract_tests.cell.rig import until
from contract_tests.databases import Databases
from contract_tests.end_to_end.engine_clients import Place, connect
from contract_tests.end_to_end.installation import Installation, order, wait_for
from contract_tests.end_to_end.test_engines import is_refused, place_of, read, refuse_missing

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "disaster-recovery.md"
ENGINES = ("duckdb", "postgres", "valkey")
PASSPHRASE = "a passphrase that is in no log"
NUMBERS = list(range(1, 8))


@dataclass
class Lost:
    """What was on the first host, and the second one."""

    second: Installation
    endpoints: dict[str, Any]
    report: dict[str, Any]
    logs: str
    file: Path
    ids: dict[str, str] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)
    seen: dict[str, dict[str, Any]] = field(default_factory=dict)


def command(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "menagerie", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **environment},
    )


def back_up(installation: Installation, instance_id: str) -> None:
    path = f"/v1/orgs/{installation.endpoints['org_id']}/instances/{instance_id}/backups"
    with installation.api() as api:
        made = api.post(path, json={})
        assert made.status_code == 201, made.text
        one = f"{path}/{made.json()['id']}"
        until(lambda: api.get(one).json()["status"] == "completed", "it is backed up", 200)


def take_away(installation: Installation) -> None:
    """Everything at once: the processes, engines among them, and the disk."""
    installation.destroy()
    shutil.rmtree(installation.home)


# Three engines on two hosts, one after the other: by day each part is shown where it is tested.
pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module", params=["sqlite and a folder", "postgresql and a bucket"])
def lost(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, databases: Databases
) -> Iterator[Lost]:
    folder = tmp_path_factory.mktemp("lost")
    (folder / "store").mkdir()
    surroundings = {"MENAGERIE_BACKUP_STORE_URL": (folder / "store").as_uri()}
    if "sqlite" in request.param:
        yield from lose(folder, surroundings, surroundings)
        return
    with bucket_server() as told:
        surroundings = {"MENAGERIE_BACKUP_STORE_URL": f"s3://{BUCKET}/it", **told}
        first, second = (
            {**surroundings, "MENAGERIE_DATABASE_URL": databases.empty("postgresql")}
            for _ in range(2)
        )
        yield from lose(folder, first, second)


def lose(folder: Path, former: dict[str, str], latter: dict[str, str]) -> Iterator[Lost]:
    """Two hosts in a folder, by their environments; with one store."""
    (folder / "passphrase").write_text(f"{PASSPHRASE}\n")
    told = ("--passphrase-file", str(folder / "passphrase"))
    first = Installation(folder / "first", former)
    second = Installation(folder / "second", latter)
    try:
        first.start()
        for engine in ENGINES:
            refuse_missing(first, engine)
        made = Lost(second, first.endpoints, {}, "", folder / "installation.backup")
        write_all(first, made)
        # Ordered and not backed up; and one that the installation's backup does not know. Of an
        # engine without points in time: others are backed up within a minute, for their logs.
        made.ids["unsaved"] = order(first, engine="duckdb", name="unsaved")["id"]
        settings = {**former, "MENAGERIE_HOME": str(first.home)}
        for words in (("backup",), ("backup", "--to", str(made.file))):
            done = command(*words, *told, **settings)
            assert done.returncode == 0, done.stderr
            made.logs += done.stdout + done.stderr
        made.ids["later"] = order(first, engine="duckdb", name="later")["id"]
        back_up(first, made.ids["later"])
        made.logs += first.log
        take_away(first)
        recovered(made, latter, *told)
        yield made
    finally:
        first.destroy()
        second.destroy()


def write_all(first: Installation, made: Lost) -> None:
    def write(engine: str) -> None:
        made.ids[engine] = order(first, engine=engine, name=engine)["id"]
        made.places[engine] = place_of(first, made.ids[engine])
        with connect(engine, made.places[engine]) as session:
            session.make()
            session.write(NUMBERS)
        back_up(first, made.ids[engine])
        # Not in the backup, and so not restorable.
        with connect(engine, made.places[engine]) as session:
            session.write([99])

    with ThreadPoolExecutor() as several:
        list(several.map(write, ENGINES))


def recovered(made: Lost, surroundings: dict[str, str], *told: str) -> None:
    source = surroundings["MENAGERIE_BACKUP_STORE_URL"]
    words = ("recover", "--from", source, "--home", str(made.second.home), "-o", "json")
    done = command(*words, *told, **surroundings)
    assert done.returncode == 0, done.stderr
    made.report = json.loads(done.stdout)
    made.second.start()
    for name in (*ENGINES, "unsaved"):
        path = f"/v1/orgs/{made.endpoints['org_id']}/instances/{made.ids[name]}"
        with made.second.api() as api:
            made.seen[name] = api.get(path).json()
    made.logs += done.stderr + made.second.log


@pytest.mark.parametrize("engine", ENGINES)
def test_every_row_up_to_the_backup_is_there_and_only_a_new_credential_works(
    lost: Lost, engine: str
) -> None:
    found = wait_for(lost.second, lost.ids[engine], "running")
    former = lost.places[engine]
    assert (found["name"], found["host"], found["status_reason"]) == (engine, former.host, None)
    now = place_of(lost.second, lost.ids[engine])
    # What was written after the backup may be in one that was made by itself since.
    assert read(engine, now) in (NUMBERS, [*NUMBERS, 99])
    assert now.credential["password"] != former.credential["password"]
    moved = Place({**former.credential, "port": now.port}, now.ca_file)
    assert is_refused(engine, moved)
    path = f"/v1/orgs/{lost.endpoints['org_id']}/instances/{lost.ids[engine]}/restores"
    with lost.second.api() as api:
        (restore,) = api.get(path).json()["items"]
    assert (restore["status"], restore["requested_by"]) == ("completed", None)


def test_whoever_asks_at_once_hears_that_it_is_being_restored(lost: Lost) -> None:
    """Or that it is done; and never that it runs, while it does not."""
    for engine in ENGINES:
        seen = lost.seen[engine]
        assert seen["status"] in {"restoring", "running"}
        if seen["status"] == "restoring":
            assert seen["status_reason"]


def test_what_has_no_backup_is_told_plainly(lost: Lost) -> None:
    found = wait_for(lost.second, lost.ids["unsaved"], "failed")
    assert found["status_reason"].startswith(
        "the data was lost with its machine: there is no backup of it in the store"
    )
    told = {each["instance_id"]: each["backup"] for each in lost.report["instances"]}
    assert told[lost.ids["unsaved"]] is None
    assert all(told[lost.ids[engine]] for engine in ENGINES)


def test_what_was_ordered_later_is_reported_with_its_backup(lost: Lost) -> None:
    (orphan,) = lost.report["orphans"]
    assert orphan.startswith(f"{lost.ids['later']}/bkp_")


def test_owners_keys_sessions_and_authorities_are_the_former_ones(lost: Lost) -> None:
    now = lost.second.endpoints
    same = ("org_id", "project_id", "api_key", "session_token")
    assert {name: now[name] for name in same} == {name: lost.endpoints[name] for name in same}
    for session in (False, True):
        with lost.second.api(session=session) as api:
            assert api.get("/v1/me").status_code == 200


def test_a_home_with_something_in_it_is_refused(lost: Lost) -> None:
    home = lost.second.home
    words = ("--from", str(lost.file), "--home", str(home))
    done = command("recover", *words, MENAGERIE_INSTALLATION_BACKUP_PASSPHRASE=PASSPHRASE)
    assert done.returncode == 2
    assert f"the home {home} is not empty" in done.stderr
    assert "recover into another folder with --home" in done.stderr


def test_no_passphrase_is_in_any_log_or_in_what_is_written(lost: Lost) -> None:
    assert PASSPHRASE not in lost.logs
    assert lost.file.stat().st_mode & 0o777 == 0o600
    for path in (lost.file, *(lost.file.parent / "store").rglob("*")):
        if path.is_file():
            content = path.read_bytes()
            assert PASSPHRASE.encode() not in content
            assert lost.endpoints["api_key"].encode() not in content


def shown() -> str:
    """The commands of the page, in order, without what they print."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return "\n".join(blocks)


@pytest.mark.nightly
def test_the_commands_of_the_guide_work_as_pasted(tmp_path: Path) -> None:
    homes = [Installation(tmp_path / "drill" / name) for name in ("first", "second")]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    try:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", shown()],
            capture_output=True,
            text=True,
            check=False,
            timeout=280,
            cwd=tmp_path,
            env={**os.environ, "PATH": path, "XDG_CONFIG_HOME": str(tmp_path / "xdg")},
        )
        assert done.returncode == 0, (done.stdout, done.stderr)
        last = done.stdout.rpartition("recovered")[2]
        assert [line for line in last.split() if line in {"7", "hello"}] == ["7", "7", "hello"]
    finally:
        for each in homes:
            each.destroy()
