"""Which server, and as whom: options, variables, profiles, and the local server's own file."""

import io
import stat
from pathlib import Path

import pytest

from clients import profiles
from clients.errors import ConfigurationError
from contract_tests.clients.conftest import Cli
from contract_tests.clients.stand_in import ControlPlane


def test_without_a_profile_the_local_server_is_used(home: Path, plane: ControlPlane) -> None:
    found = profiles.resolve()
    assert (found.base_url, found.api_key) == (plane.base_url, plane.world.api_key)
    assert found.origin == str(home / ".menagerie" / "endpoints.json")


def test_menagerie_home_moves_the_local_server(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / ".menagerie").rename(home / "elsewhere")
    assert profiles.resolve().base_url == profiles.DEFAULT_BASE_URL
    monkeypatch.setenv("MENAGERIE_HOME", str(home / "elsewhere"))
    assert profiles.resolve().base_url != profiles.DEFAULT_BASE_URL


def test_profile_wins_over_local_and_variables_over_both(
    home: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (
        cli(
            "profiles", "set", "work", "base_url=https://db.example.com", "api_key=mk_live_work"
        ).code
        == 0
    )
    assert (
        cli("profiles", "set", "other", "base_url=https://other.example.com", "org_id=org_1").code
        == 0
    )
    assert profiles.resolve().api_key == "mk_live_work"
    assert profiles.resolve().org_id is None
    assert profiles.resolve("other").org_id == "org_1"
    monkeypatch.setenv("MENAGERIE_PROFILE", "other")
    assert profiles.resolve().base_url == "https://other.example.com"
    monkeypatch.setenv("MENAGERIE_ORG", "org_2")
    assert profiles.resolve().org_id == "org_2"
    assert profiles.resolve("work").org_id == "org_2"


def test_secrets_do_not_go_to_another_server(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MENAGERIE_BASE_URL", "https://elsewhere.example.com")
    found = profiles.resolve()
    assert found.settings() == {"base_url": "https://elsewhere.example.com"}
    monkeypatch.setenv("MENAGERIE_API_KEY", "mk_live_elsewhere")
    assert profiles.resolve().api_key == "mk_live_elsewhere"


def test_the_same_server_by_variable_keeps_its_secrets(
    home: Path, plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MENAGERIE_BASE_URL", plane.base_url + "/")
    assert profiles.resolve().api_key == plane.world.api_key


def test_the_file_is_private_and_lists_show_no_secret(
    folder: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("mk_live_secret\n"))
    assert cli("profiles", "set", "a b", "base_url=https://db.example.com", "api_key=-").code == 0
    path = folder / "config" / "menagerie" / "config.toml"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "mk_live_secret" in path.read_text()
    for argv in (["list"], ["list", "-o", "json"], ["show"], ["show", "-o", "yaml"]):
        ran = cli("profiles", *argv)
        assert ran.code == 0
        assert "mk_live_secret" not in ran.out
        assert "https://db.example.com" in ran.out
    assert "mk_live_secret" not in repr(profiles.resolve())


def test_use_and_remove(folder: Path, cli: Cli) -> None:
    for name in ("one", "two"):
        cli("profiles", "set", name, f"base_url=https://{name}.example.com")
    assert profiles.resolve().name == "one"
    assert cli("profiles", "use", "two").code == 0
    assert profiles.resolve().name == "two"
    assert cli("profiles", "remove", "two", "--yes").code == 0
    assert profiles.resolve().name is None
    assert cli("profiles", "use", "two").code == 2
    assert cli("profiles", "set", "three", "colour=red").code == 2
    assert cli("profiles", "set", "three", "org_id=org_1").code == 2


def test_a_broken_file_is_named(folder: Path) -> None:
    path = folder / "config" / "menagerie" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text("= nonsense")
    with pytest.raises(ConfigurationError, match=r"config\.toml"):
        profiles.resolve()
