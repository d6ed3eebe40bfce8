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


@pytest.mark.parametrize(
    "text",
    [
        "\U0001f600",
        "\x7f",
        'a\\b"c',
        'x"]\n[profiles.evil]\nbase_url="y"',
        "\x00\x1f\x80",
        "größe\u2028",
    ],
)
def test_what_is_written_is_read(text: str, folder: Path) -> None:
    kept = profiles.Profiles.read()
    kept.named = {text: {"base_url": text, "org_id": text}, "other": {"base_url": "http://x"}}
    kept.active = text
    kept.write()
    found = profiles.Profiles.read()
    assert (found.named, found.active) == (kept.named, text)


def test_half_a_character_leaves_the_file_as_it_was(folder: Path, cli: Cli) -> None:
    assert cli("profiles", "set", "one", "base_url=http://x").code == 0
    ran = cli("profiles", "set", "one", "base_url=http://\udcff")
    assert (ran.code, "is not text that a file can hold" in ran.err) == (2, True), ran
    assert profiles.resolve("one").base_url == "http://x"


@pytest.mark.parametrize(
    "token",
    [
        "\U0001f600",
        "ms_\U0001f600",
        "ms_\ud800",
        "ms_\x7f",
        'ms_"\n[profiles.evil]',
        "ms_",
        "mk_x",
        7,
    ],
)
def test_a_session_token_that_is_none_is_not_kept(
    token: object, home: Path, plane: ControlPlane, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli("profiles", "set", "one", f"base_url={plane.base_url}").code == 0
    plane.script("POST", "/v1/sessions", (201, {}, {"token": token, "expires_at": "x"}))
    monkeypatch.setattr("sys.stdin", io.StringIO("pw\n"))
    ran = cli("login", "--email", "ada@example.com", "--password-stdin")
    assert (ran.code, ran.err.count("\n")) == (2, 1), ran
    assert "it has to begin with ms_" in ran.err
    assert "session_token" not in profiles.Profiles.read().named["one"]
    ran = cli("profiles", "set", "one", "api_key=ключ")
    assert (ran.code, "begin with mk_" in ran.err) == (2, True), ran


@pytest.mark.parametrize("text", ["profiles = 7", "[profiles]\nx = 1", "active = 3"])
def test_a_file_of_another_shape_is_one_line(text: str, folder: Path, cli: Cli) -> None:
    path = folder / "config" / "menagerie" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    ran = cli("profiles", "show")
    assert (ran.code, ran.err.count("\n")) == (2, 1), ran


def kept() -> dict[str, dict[str, str]]:
    return profiles.Profiles.read().named


@pytest.mark.parametrize("words", [[], ["--save-as", "default"]])
def test_a_session_is_not_kept_with_another_server(
    words: list[str],
    home: Path,
    cli: Cli,
    plane: ControlPlane,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next command would send it there."""
    cli("profiles", "set", "default", "base_url=https://elsewhere.example.com")
    monkeypatch.setenv("MENAGERIE_BASE_URL", plane.base_url)
    monkeypatch.setattr("sys.stdin", io.StringIO("correct-horse-battery\n"))
    ran = cli("login", "--email", "ada@example.com", "--password-stdin", *words)
    assert ran.code != 0
    assert "profile default is for https://elsewhere.example.com" in ran.err
    assert "--save-as NAME" in ran.err
    assert kept() == {"default": {"base_url": "https://elsewhere.example.com"}}
    # The second factor is added to the session that there is, and nothing is kept.
    monkeypatch.setenv("MENAGERIE_SESSION_TOKEN", plane.world.session_token)
    plane.script("POST", "/v1/sessions/current/actions/step-up", (200, {}, {"mfa_expires_at": "x"}))
    assert cli("login", "--step-up", "--totp-code", "123456").code == 0


def test_a_profile_of_another_server_has_none_of_the_former_tokens(folder: Path, cli: Cli) -> None:
    given = ["base_url=https://one.example.com", "session_token=ms_one", "org_id=org_1"]
    cli("profiles", "set", "work", *given)
    cli("profiles", "set", "work", "base_url=https://one.example.com/", "project_id=proj_1")
    assert kept()["work"]["session_token"] == "ms_one"
    ran = cli("profiles", "set", "work", "base_url=https://two.example.com", "api_key=mk_two")
    assert kept()["work"] == {"base_url": "https://two.example.com", "api_key": "mk_two"}
    assert "previous server: org_id, project_id, session_token" in ran.err
