"""What is installed: servers of the family, told apart by what they say they are."""

from pathlib import Path

import pytest

from cell.engines.driver import Login
from cell.engines.mysql import dialects, servers
from cell.engines.mysql.accounts import mysql_all, mysql_tenant, native_hash
from cell.engines.mysql.driver import MySQLFamily, mariadb, mysql
from cell.runtime.host import Host
from cell.specification import Size

SAID = {
    "mariadbd  Ver 10.11.19-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64 (Debian 12)": (
        "mariadb",
        "10.11.19",
    ),
    "mysqld  Ver 10.5.29-MariaDB for Linux on x86_64 (MariaDB Server)": ("mariadb", "10.5.29"),
    "/opt/bin/mariadbd  Ver 11.8.3-MariaDB for Linux on x86_64": ("mariadb", "11.8.3"),
    "/usr/sbin/mysqld  Ver 8.0.43 for Linux on x86_64 (MySQL Community Server - GPL)": (
        "mysql",
        "8.0.43",
    ),
    "mysqld  Ver 8.4.6-6 for Linux on x86_64 (Percona Server (GPL), Release 6)": (
        "mysql",
        "8.4.6",
    ),
    "/usr/sbin/mysqld  Ver 5.7.44 for Linux on x86_64 (MySQL Community Server (GPL))": (
        "mysql",
        "5.7.44",
    ),
}
SIZE = Size("s0", 0.5, 2**30, 20 * 10**9, 60)


def _program(folder: Path, name: str, says: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    library = folder.parent / "lib" / "plugin" / "password_reuse_check.so"
    library.parent.mkdir(parents=True, exist_ok=True)
    library.touch()
    return path


@pytest.mark.parametrize("said", SAID, ids=lambda said: SAID[said][1])
def test_a_server_is_what_it_says(said: str) -> None:
    found = servers.read(said, Path("/opt/x/bin/mysqld"))
    assert found is not None
    assert (found.engine, found.version) == SAID[said]


def test_what_says_nothing_of_the_kind_is_none() -> None:
    for said in ("", "usage: mysqld", "Ver 8", "psql (PostgreSQL) 16.4"):
        assert servers.read(said, Path("/bin/x")) is None


def test_servers_are_found_on_path_once_and_the_newest_first(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = list(SAID)
    for number, line in enumerate(lines):
        _program(tmp_path / str(number) / "bin", "mysqld", line)
    (tmp_path / "again").symlink_to(tmp_path / "0")
    _program(tmp_path / "broken" / "bin", "mysqld", "Segmentation fault")
    folders = [*range(len(lines)), "again", "broken", "absent"]
    path = ":".join(str(tmp_path / str(name) / "bin") for name in folders)
    monkeypatch.setenv("PATH", path)
    monkeypatch.setattr(servers, "FURTHER", ())
    # Too old, one for the plugin that refuses passwords, one for two passwords of one user.
    (tmp_path / "1" / "lib" / "plugin" / "password_reuse_check.so").unlink()
    maria, other = mariadb(host), mysql(host)
    assert maria.versions() == ("11.8", "10.11")
    assert other.versions() == ("8.4", "8.0")
    assert "8.4.6" in other.source
    assert str(tmp_path) in maria.source


def test_without_a_server_nothing_is_reported(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Debian links mysqld to MariaDB's server, which does not make it MySQL.
    real = _program(tmp_path / "bin", "mariadbd", next(iter(SAID)))
    (tmp_path / "bin" / "mysqld").symlink_to(real)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(servers, "FURTHER", ())
    assert mysql(host).versions() == ()
    assert mysql(host).source == "no mysql server on PATH"
    assert mariadb(host).versions() == ("10.11",)


def test_tools_are_those_of_the_server(tmp_path: Path) -> None:
    program = _program(tmp_path / "one" / "sbin", "mariadbd", "")
    tool = _program(tmp_path / "one" / "bin", "mariadb-backup", "server 11.8.3-MariaDB debian")
    server = servers.ServerInstallation("mariadb", (11, 8, 2), program)
    assert server.tool("mariadb-backup") == tool
    assert server.tool("absent", "mariadb-backup") == tool
    assert server.tool("absent") is None
    assert servers.same_release(tool, server)
    assert not servers.same_release(
        tool, servers.ServerInstallation("mariadb", (10, 11, 2), program)
    )
    assert [mount.source for mount in server.mounts] == [tmp_path / "one"]
    assert (
        servers.ServerInstallation("mariadb", (11, 8, 2), Path("/usr/sbin/mariadbd")).mounts == []
    )


def test_mysql_is_started_with_the_login_the_gateway_can_pass_on(
    host: Host, tmp_path: Path
) -> None:
    """Nothing here has run: no MySQL is to be had on this machine."""
    words = {}
    for number in ((8, 0, 20), (8, 0, 43), (8, 4, 6)):
        server = servers.ServerInstallation("mysql", number, tmp_path / "bin" / "mysqld")
        words[number] = dialects.MYSQL.options(server, SIZE)
    assert "--default-authentication-plugin=mysql_native_password" in words[8, 0, 20]
    assert "--mysql-native-password=ON" in words[8, 4, 6]
    assert any(word.startswith("--innodb-log-file-size=") for word in words[8, 0, 20])
    assert any(word.startswith("--innodb-redo-log-capacity=") for word in words[8, 0, 43])
    assert not any("thread-" in word or "aria" in word for word in words[8, 4, 6])


def test_mysql_keeps_the_older_password_beside_the_newer() -> None:
    newer, older, oldest = (native_hash(word) for word in ("newer", "older", "oldest"))
    told = {
        number: mysql_tenant("ours", hashes)
        for number, hashes in enumerate(([], [newer], [newer, older, oldest]))
    }
    # Whoever may log in does, also where the database that is missing cannot be made.
    *none, _, _, _, made = told[0]
    assert made == "DEALLOCATE PREPARE made"
    assert "ACCOUNT LOCK" in none[-1]
    one, two = ([*statements[:-4]] for statements in (told[1], told[2]))
    assert "JSON_REMOVE" in one[-2]
    assert newer in two[-3]
    assert older in two[-2]
    assert "additional_password" in two[-2]
    assert oldest not in "".join(told[2])
    everything = mysql_all("ours", native_hash("secret"), [newer, older])
    assert any("REVOKE ALL ON mysql.* FROM app" in statement for statement in everything)
    assert all("\n" not in statement for statement in everything)


def test_the_hash_is_mysqls() -> None:
    """As SELECT PASSWORD('password') has answered since 4.1."""
    assert native_hash("password") == "*2470C0C06DEE42FD1618BB99005ADCA2EC9D1E19"


def test_a_uri_carries_the_password_and_asks_for_verification(host: Host) -> None:
    driver: MySQLFamily = mariadb(host)
    uri = driver.uri(Login("app", "a/b:c@d"), "x.example", 3306)
    assert uri == "mysql://app:a%2Fb%3Ac%40d@x.example:3306/app?ssl-mode=VERIFY_IDENTITY"
