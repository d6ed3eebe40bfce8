"""What a start makes of a home that another start, version or hand has left as it is."""

import dataclasses
import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pytest
from sqlalchemy import select

from contract_tests.end_to_end.installation import Installation
from menagerie import composition, first_start, keys
from menagerie.endpoints import endpoints_file, read_endpoints
from menagerie.errors import SettingsError
from menagerie.refusals import unusable
from menagerie.settings import Settings, load
from storage.access import passkeys, sessions, users
from storage.database import now


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load(home=tmp_path / "home")


class Said(Protocol):
    def __call__(self, settings: Settings, status: int) -> str: ...


@pytest.fixture
def said(capfd: pytest.CaptureFixture[str]) -> Said:
    """What `init`, which ends with this status, says to people: no traceback, one line."""

    def told(settings: Settings, status: int) -> str:
        with pytest.raises(SystemExit) as ended, unusable("init"):
            first_start.initialize(settings)
        assert ended.value.code == status
        text = capfd.readouterr().err
        assert text.startswith("menagerie init: ")
        assert text.count("\n") == 1
        return text

    return told


def test_a_start_that_was_cut_short_is_made_good(settings: Settings) -> None:
    """The database was written, and nothing of it was told to anybody."""
    made, owner = first_start.initialize(settings)
    endpoints_file(settings.root).unlink()
    again, owner_again = first_start.initialize(settings)
    assert owner is not None
    assert owner_again is not None
    assert owner_again.email == owner.email
    assert owner_again.password != owner.password
    assert again.api_key != made.api_key
    assert again.session_token != made.session_token
    assert (again.org_id, again.project_id) == (made.org_id, made.project_id)
    assert first_start.initialize(settings) == (again, None)


def test_a_lost_authenticator_app_goes_with_it(settings: Settings) -> None:
    first_start.initialize(settings)
    database = composition.build_services(settings).database
    with database.write() as db:
        owner = users.by_email(db, settings.owner_email)
        assert owner is not None
        owner.totp_secret_sealed, owner.totp_last_step = b"sealed", 1
        owner.totp_confirmed_at = now(db)
        made = passkeys.Passkey(name="Phone", credential_id="x", public_key=b"k", sign_count=0)
        made.is_backup_eligible = made.is_backed_up = False
        passkeys.add(db, owner, made)
        for each in db.scalars(select(sessions.UserSession)):
            each.mfa_at = now(db)
    endpoints_file(settings.root).unlink()
    first_start.initialize(settings)
    with database.read() as db:
        found = users.by_email(db, settings.owner_email)
        assert found is not None
        left = (found.totp_secret_sealed, found.totp_confirmed_at, found.totp_last_step)
        assert left == (None, None, None)
        assert (found.passkeys, passkeys.credential_ids(db, found.id)) == (0, [])
        assert not any(each.mfa_at for each in db.scalars(select(sessions.UserSession)))
    database.dispose()


@pytest.mark.nightly
def test_the_secrets_made_anew_let_in(fresh: Callable[..., Installation]) -> None:
    installation = fresh()
    first_start.initialize(load(home=installation.home))
    endpoints_file(installation.home).unlink()
    told = installation.start()
    password = told.partition("  password ")[2].split()[0]
    with installation.api() as client:
        assert client.get("/v1/orgs").status_code == 200
        given = {"email": load().owner_email, "password": password}
        assert client.post("/v1/sessions", json=given).status_code == 201


@pytest.mark.parametrize(("host", "told"), [("0.0.0.0", "127.0.0.1"), ("::", "[::1]")])
def test_clients_are_told_an_address_they_can_ask(tmp_path: Path, host: str, told: str) -> None:
    """Where the API listens on every address, as in a container."""
    made, _ = first_start.initialize(load(home=tmp_path / "home", host=host, port=8080))
    assert made.base_url == f"http://{told}:8080"


def test_an_organization_of_others_is_not_taken(settings: Settings) -> None:
    first_start.initialize(settings)
    endpoints_file(settings.root).unlink()
    other = settings.model_copy(update={"owner_email": "another@localhost"})
    with pytest.raises(SettingsError, match="choose another first_org_name"):
        first_start.initialize(other)


def test_an_older_endpoints_file_is_renewed(settings: Settings) -> None:
    made, _ = first_start.initialize(settings)
    older = dataclasses.asdict(made) | {"gateway_port": 8443}
    del older["gateway_ports"]
    endpoints_file(settings.root).write_text(json.dumps(older))
    assert first_start.initialize(settings) == (made, None)
    assert read_endpoints(settings.root) == made


@pytest.fixture(scope="module")
def settled(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Of a home that was made whole, whose endpoints.json each test may spoil."""
    made = load(home=tmp_path_factory.mktemp("settled") / "home")
    first_start.initialize(made)
    return made


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"base_url": "x"}', "\x00" * 300])
def test_an_endpoints_file_that_lets_nobody_in_is_refused(settled: Settings, content: str) -> None:
    endpoints_file(settled.root).write_text(content)
    with pytest.raises(SettingsError, match=r"endpoints\.json cannot be used") as refused:
        first_start.initialize(settled)
    assert "\n" not in str(refused.value)
    assert endpoints_file(settled.root).read_text() == content


def test_why_an_endpoints_file_is_refused_is_said(settled: Settings, said: Said) -> None:
    endpoints_file(settled.root).write_text("{")
    assert "endpoints.json cannot be used" in said(settled, 2)


def test_endpoints_of_another_database_are_refused(settings: Settings, said: Said) -> None:
    first_start.initialize(settings)
    for file in settings.root.glob("menagerie.db*"):
        file.unlink()
    assert "belongs to another database" in said(settings, 2)


def test_a_database_of_a_newer_version_is_left_alone(settings: Settings, said: Said) -> None:
    first_start.initialize(settings)
    file = settings.root / "menagerie.db"
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    text = said(settings, 1)
    assert "revision 9999" in text
    assert "newer" in text


def test_a_database_that_is_none_is_named(settings: Settings, said: Said) -> None:
    settings.root.mkdir(parents=True)
    (settings.root / "menagerie.db").write_text("nothing of the kind" * 100)
    assert "check the setting database_url" in said(settings, 1)


def test_a_database_that_cannot_be_reached_is_named(settings: Settings, said: Said) -> None:
    nobody = settings.model_copy(update={"database_url": "postgresql://nobody@127.0.0.1:1/none"})
    text = said(nobody, 1)
    assert "the database cannot be reached: " in text
    assert "check the setting database_url" in text


@pytest.mark.parametrize("name", ["seal", "cursor", "signing"])
def test_a_key_that_was_cut_short_is_named(settings: Settings, name: str) -> None:
    keys.make_all(settings.root)
    (settings.root / "keys" / f"{name}.key").write_bytes(b"short")
    with pytest.raises(SettingsError, match=rf"{name}.key has 5 bytes instead of 32"):
        keys.make_all(settings.root)


@pytest.mark.nightly
def test_a_first_start_that_is_ended_early_has_told_its_secrets(tmp_path: Path) -> None:
    home = tmp_path / "home"
    options = ["--home", str(home), "--port", "0", "--gateway-port", "0"]
    with subprocess.Popen(
        [sys.executable, "-m", "menagerie", "serve", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while process.poll() is None and not endpoints_file(home).exists():
            time.sleep(0.01)
        process.terminate()
        told, logged = process.communicate(timeout=60)
    assert process.returncode == 0, logged
    assert "Traceback" not in logged
    endpoints = read_endpoints(home)
    assert endpoints is not None
    assert endpoints.api_key in told
    assert "password" in told
