"""A home or a setting that cannot be used is one line; a home that can is closed to all others."""

import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from contract_tests.end_to_end.installation import Installation
from menagerie import first_start, home
from menagerie.errors import SettingsError
from menagerie.settings import Settings, load

ROOT = Path(__file__).resolve().parents[2]
MENAGERIE = [sys.executable, "-m", "menagerie"]
OTHERS = ("init", "cell", "gateway", "upgrade-database")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def refused(words: list[str], status: int = 2, **environment: str) -> str:
    """The one line that a command ends with."""
    ended = subprocess.run(
        words,
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (status, ""), ended.stderr
    assert ended.stderr.count("\n") == 1, ended.stderr
    return ended.stderr


# All commands see to the home in one place, each by what it writes: by day one of either kind.
@pytest.mark.parametrize(
    "command", ["serve", "api", *(pytest.param(each, marks=pytest.mark.nightly) for each in OTHERS)]
)
def test_a_home_that_is_a_file_is_refused(command: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    told = refused([*MENAGERIE, command, "--home", str(file)])
    reason = f"the home {file} cannot be created: {file} is a file"
    assert told.startswith(f"menagerie {command}: {reason}")
    assert "--home" in told


def test_a_home_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match=f"{tmp_path}/file is a file"):
        home.prepare(tmp_path / "file" / "below" / "home")


@pytest.mark.nightly
@as_root
@pytest.mark.parametrize(
    ("options", "before", "reason"),
    [("ro", "true", "read-only file system"), ("size=64k", "cat /dev/zero > x", "is full")],
)
def test_a_home_without_room_is_refused(
    options: str, before: str, reason: str, tmp_path: Path
) -> None:
    script = f'mount -t tmpfs -o {options} none "$0"; (cd "$0"; {before}) 2>&-; exec "$@"'
    if subprocess.run(["unshare", "-m", "true"], check=False).returncode:
        pytest.skip("no mount namespaces here")
    command = [*MENAGERIE, "init", "--home", str(tmp_path)]
    told = refused(["unshare", "-m", "sh", "-c", script, str(tmp_path), *command])
    assert reason in told
    assert str(tmp_path) in told


@as_root
def test_a_home_of_another_user_is_refused(tmp_path: Path) -> None:
    os.chown(tmp_path, 12345, 12345)
    with pytest.raises(SettingsError, match="belongs to uid 12345 and not to root: run this as"):
        home.prepare(tmp_path)


def test_an_unknown_variable_is_named_with_the_nearest() -> None:
    told = refused([*MENAGERIE, "config"], MENAGERIE_GATEWAY_LISTENS="::")
    assert told == (
        "menagerie config: unknown variable MENAGERIE_GATEWAY_LISTENS (did you mean "
        "MENAGERIE_GATEWAY_LISTEN?); see docs/configuration.md\n"
    )


@pytest.mark.nightly
def test_an_unknown_key_of_the_file_is_named_with_the_nearest(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("prot = 1\nzzzzzzzz = 2\n")
    told = refused([*MENAGERIE, "serve", "--home", str(tmp_path)])
    assert f"{file}: unknown settings prot (did you mean port?), zzzzzzzz; " in told


@pytest.mark.parametrize(
    "name",
    [
        *("MENAGERIE_API_KEY", "MENAGERIE_NO_SYSTEM_PACKAGES", "MENAGERIE_SERVICE_HOST"),
        *("MENAGERIE_PORT_8080_TCP_ADDR", "MENAGERIE_SERVICE_PORT_HTTP"),
    ],
)
def test_variables_of_others_are_no_settings(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "10.0.0.1")
    load()


def test_no_variable_that_our_code_names_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those of the command line's client, which runs in the same shells."""
    rooms = [ROOT / name for name in ("cell", "clients", "control", "menagerie", "tools")]
    files = [path for room in rooms for path in room.rglob("*") if path.is_file()]
    texts = (path.read_text(errors="replace") for path in [ROOT / "Makefile", *files])
    found = {name for text in texts for name in re.findall(r"\bMENAGERIE_[A-Z_]+[A-Z]\b", text)}
    values = {"MENAGERIE_PARENT_PID": "1"}
    fields = {f"MENAGERIE_{name.upper()}" for name in Settings.model_fields}
    for name in found - fields:
        monkeypatch.setenv(name, values.get(name, ""))
    monkeypatch.delenv("MENAGERIE_CONFIG", raising=False)
    load()


@pytest.mark.nightly
def test_what_an_older_version_cannot_read_ends_all_of_it(
    fresh: Callable[..., Installation],
) -> None:
    """With the cell and the gateway: they would serve what a newer version has changed."""
    root = fresh().home
    first_start.initialize(load(home=root))
    with sqlite3.connect(root / "menagerie.db") as database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
    ended = subprocess.run(
        [*MENAGERIE, "serve", "--home", str(root), "--port", "0", "--gateway-port", "0"],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ended.returncode == 1, ended.stderr
    assert "menagerie api: the database is at revision 9999" in ended.stderr
    assert ended.stderr.count("is at revision 9999") == 1, "it is not started again"
    assert ended.stderr.rstrip().splitlines()[-1].startswith("menagerie serve: stopped, because")
