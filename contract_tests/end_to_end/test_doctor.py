"""`menagerie doctor`: each fault, made, is found and told with what mends it."""

import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cell.engines import FoundEngines
from contract_tests.cell.rig import until
from contract_tests.end_to_end.installation import Installation
from menagerie import waiting
from menagerie.doctor import examination, findings, installation, machine
from menagerie.doctor.findings import Finding
from menagerie.settings import Settings, load

ROOT = Path(__file__).resolve().parents[2]
DOCTOR = [sys.executable, "-m", "menagerie", "doctor", "--output", "json"]


def only(found: Iterable[Finding], check: str) -> Finding:
    (one,) = [each for each in found if each.check == check]
    return one


def told(
    words: list[str], status: int, check: str, **environment: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the command told as JSON, and the finding of one check."""
    ended = subprocess.run(
        words,
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ended.returncode == status, ended.stdout + ended.stderr
    report = json.loads(ended.stdout)
    return report, next(each for each in report["findings"] if each["check"] == check)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    ports = {f"gateway_{name}_port": 0 for name in load().gateway_ports}
    return load(home=tmp_path / "home", port=0, **ports)


def without_bubblewrap(folder: Path) -> dict[str, str]:
    for program in ("setpriv", "true", "unshare"):
        (folder / program).symlink_to(str(shutil.which(program)))
    free = {f"MENAGERIE_GATEWAY_{name.upper()}_PORT": "0" for name in load().gateway_ports}
    return free | {"PATH": str(folder), "MENAGERIE_PORT": "0"}


@pytest.mark.nightly
def test_bubblewrap_that_is_missing_lessens_confinement_only(tmp_path: Path) -> None:
    """The finding, and how it counts: by itself not, and where one is strict."""
    options = ["--home", str(tmp_path / "none")]
    surroundings = without_bubblewrap(tmp_path)
    report, found = told([*DOCTOR, *options], 0, "confinement filesystem", **surroundings)
    assert found["status"] == report["status"] == "warning"
    assert "bubblewrap is not installed" in found["detail"]
    assert found["remedy"] == "apt-get install bubblewrap"
    every = [Finding(**each) for each in report["findings"]]
    assert findings.exit_status(every, strict=False) == 0
    assert findings.exit_status(every, strict=True) == 1
    assert not (tmp_path / "none").exists()


@pytest.mark.nightly
def test_a_warning_counts_where_it_is_said_to(tmp_path: Path) -> None:
    options = ["--home", str(tmp_path / "none"), "--strict"]
    _, found = told(
        [*DOCTOR, *options], 1, "confinement filesystem", **without_bubblewrap(tmp_path)
    )
    assert found["status"] == "warning"


def test_a_home_that_is_a_file_does_not_work(settings: Settings) -> None:
    settings.root.write_text("")
    (found,) = installation.of_home(settings)
    assert found.status == "failure"
    assert "is a file" in found.detail


@pytest.mark.nightly
def test_a_full_disk_does_not_work(tmp_path: Path) -> None:
    if subprocess.run(["unshare", "-m", "true"], check=False, stderr=-1).returncode:
        pytest.skip("no mount namespaces here")
    script = 'mount -t tmpfs -o size=64k none "$0"; (cd "$0"; cat /dev/zero > x) 2>&-; exec "$@"'
    command = ["unshare", "-m", "sh", "-c", script, str(tmp_path), *DOCTOR, "--home", str(tmp_path)]
    report, found = told(command, 1, "home")
    assert "is full" in found["detail"]
    disk = next(each for each in report["findings"] if each["check"] == "disk")
    assert disk["status"] == "failure"


def test_a_home_that_lies_open_is_found_and_left(settings: Settings) -> None:
    settings.root.mkdir(mode=0o755)
    settings.root.chmod(0o755)
    (found,) = installation.of_home(settings)
    assert (found.status, found.remedy) == ("warning", f"chmod go-rw {settings.root}")
    assert settings.root.stat().st_mode & 0o777 == 0o755
    settings.root.chmod(0o700)
    (found,) = installation.of_home(settings)
    assert found.status == "ok"


def test_a_port_that_is_taken_is_named(settings: Settings) -> None:
    assert only(installation.of_ports(settings), "ports").status == "ok"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        taking = settings.model_copy(update={"gateway_mysql_port": port})
        found = only(installation.of_ports(taking), f"port {port}")
    assert found.status == "failure"
    assert "choose another with --gateway-mysql-port" in found.detail
    assert str(port) in str(found.remedy)


def test_a_database_that_is_away_does_not_work(settings: Settings) -> None:
    away = settings.model_copy(update={"database_url": "postgresql://x@127.0.0.1:1/none"})
    found = only(installation.of_database(away), "database")
    assert found.status == "failure"
    assert "database_url" in str(found.remedy)


def test_a_store_that_cannot_be_used_is_named(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    told = {
        "backup_store_url": (tmp_path / "there").as_uri(),
        "backup_copy_store_url": (tmp_path / "not mounted").as_uri(),
    }
    both = list(installation.of_stores(settings.model_copy(update=told)))
    assert only(both, "backup store").status == "ok"
    second = only(both, "second backup store")
    assert second.status == "failure"
    assert "the folder of the second store of backups is missing" in second.detail
    assert "backup_copy_store_url" in str(second.remedy)
    assert list(installation.of_stores(settings)) == []


@pytest.mark.parametrize(("off_s", "way"), [(3600, "ahead of"), (-3600, "behind")])
def test_a_clock_that_is_off_is_told(
    fresh_database: Settings, monkeypatch: pytest.MonkeyPatch, off_s: float, way: str
) -> None:
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + off_s)
    found = only(installation.of_database(fresh_database), "clock")
    assert (found.status, found.remedy) == ("warning", "timedatectl set-ntp true")
    assert way in found.detail


@pytest.fixture
def fresh_database(settings: Settings) -> Settings:
    settings.root.mkdir()
    (settings.root / "menagerie.db").touch()
    return settings


def test_names_that_do_not_resolve_are_told(settings: Settings) -> None:
    (found,) = machine.names(settings.model_copy(update={"instance_domain": "invalid"}))
    assert (found.status, found.remedy) == ("warning", "add a DNS record for *.local.invalid")


def test_a_machine_that_runs_no_engine_does_not_work(monkeypatch: pytest.MonkeyPatch) -> None:
    every = list(machine.confinement_and_engines())
    assert only(every, "engine duckdb").status == "ok"
    monkeypatch.setattr(machine, "find", lambda _host: FoundEngines({}, {}))
    assert only(machine.confinement_and_engines(), "engines").status == "failure"


def test_a_check_that_breaks_is_a_finding(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> Iterable[Finding]:
        raise OSError("no /proc here")

    monkeypatch.setattr(machine, "confinement_and_engines", broken)
    found = examination.examine(settings)
    assert only(found, "engines").detail == "could not be checked: OSError: no /proc here"
    assert findings.exit_status(found, strict=False) == 1
    assert "failure  engines: could not" in findings.text(found)


@pytest.mark.nightly
def test_a_service_that_runs_is_seen_and_one_that_stopped(
    fresh: Callable[..., Installation], monkeypatch: pytest.MonkeyPatch
) -> None:
    served = fresh()
    served.start()
    settings = load(home=served.home)
    found = examination.examine(settings)
    assert only(found, "service").status == "ok"
    assert only(found, "ports").detail == "in use by the service of this home"
    assert findings.exit_status(found, strict=False) == 0
    api = served.part("api")
    api.suspend()
    try:
        monkeypatch.setattr(waiting, "ASK_TIMEOUT_S", 0.2)
        (hung,) = installation.of_service(settings)
        assert hung.status == "failure"
    finally:
        monkeypatch.undo()
        api.resume()
    until(lambda: not waiting.look(settings).missing, "it is well again")
    served.stop()
    (stopped,) = installation.of_service(settings)
    assert (stopped.status, stopped.remedy) == ("note", "menagerie serve")


def test_what_lies_in_a_home_that_cannot_be_used_is_left_alone(
    settings: Settings, tmp_path: Path
) -> None:
    """Whoever made it would have root write to a file of his choice, or read without end."""
    target = tmp_path / "target.db"
    with closing(sqlite3.connect(target)) as made:
        made.execute("CREATE TABLE t (a)")
    before = target.read_bytes()
    settings.root.mkdir(mode=0o700)
    (settings.root / "menagerie.db").symlink_to(target)
    assert only(installation.of_home(settings), "home").status == "failure"
    assert only(installation.of_database(settings), "database").status == "note"
    assert target.read_bytes() == before
    os.mkfifo(settings.root / "serve.lock")
    (settings.root / "endpoints.json").symlink_to("/dev/zero")
    assert not waiting.is_served(settings)
    assert waiting.address(settings) == settings.api_url_local
