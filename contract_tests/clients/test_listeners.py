"""No key goes to another user who listens where the local service should."""

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from clients import listeners, profiles
from clients.errors import ConfigurationError

NOBODY = 65534
LISTEN = """
import socket, sys
with socket.create_server(("127.0.0.1", 0)) as listener:
    print(listener.getsockname()[1], flush=True)
    sys.stdin.read()
"""
HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n"


@contextmanager
def stranger() -> Iterator[int]:
    """The port at which another user listens."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    pipe = subprocess.PIPE
    command = ["/usr/bin/env", "python3", "-c", LISTEN]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, user=NOBODY) as child:
        assert child.stdout is not None
        yield int(child.stdout.readline())
        child.communicate("")


def environ_of(folder: Path, port: int, **more: str) -> dict[str, str]:
    told = {"base_url": f"http://127.0.0.1:{port}", "api_key": "mk_live_x"}
    (folder / "endpoints.json").write_text(json.dumps(told))
    (folder / "endpoints.json").chmod(0o600)
    return {"MENAGERIE_HOME": str(folder), "HOME": str(folder), **more}


def test_a_stranger_at_the_local_port_is_refused(tmp_path: Path) -> None:
    with stranger() as port:
        with pytest.raises(ConfigurationError, match=rf"uid {NOBODY}.*:{port}.* nothing was sent"):
            profiles.resolve(environ=environ_of(tmp_path, port))
        # A profile of the same server gets the local one's secrets.
        environ = environ_of(tmp_path, port, MENAGERIE_PROFILE="work")
        folder = tmp_path / ".config" / "menagerie"
        folder.mkdir(parents=True)
        (folder / "config.toml").write_text(
            f'[profiles.work]\nbase_url = "http://127.0.0.1:{port}"\n'
        )
        with pytest.raises(ConfigurationError, match="nothing was sent"):
            profiles.resolve(environ=environ)
        # Another server that was named on purpose may be anybody's.
        named = environ_of(tmp_path, 1, MENAGERIE_BASE_URL=f"http://127.0.0.1:{port}")
        assert profiles.resolve(environ=named).api_key is None


def test_our_own_service_and_none_are_not(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert profiles.resolve(environ=environ_of(tmp_path, port)).api_key == "mk_live_x"
    assert profiles.resolve(environ=environ_of(tmp_path, port)).api_key == "mk_live_x"


@pytest.mark.parametrize(
    ("name", "place", "url", "is_refused"),
    [
        ("tcp", "0100007F:1F90", "http://127.0.0.1:8080", True),
        ("tcp", "00000000:1F90", "http://localhost:8080", True),
        ("tcp6", f"{'0' * 32}:1F90", "http://127.0.0.1:8080", True),
        ("tcp6", f"{'0' * 24}01000000:1F90", "http://[::1]:8080", True),
        ("tcp6", f"{'0' * 16}FFFF00000100007F:1F90", "http://127.0.0.1:8080", True),
        ("tcp", "0100007F:1F91", "http://127.0.0.1:8080", False),
        ("tcp", "0200007F:1F90", "http://127.0.0.1:8080", False),
        ("tcp", "0100007F:1F90", "https://127.0.0.1:8080", False),
        ("tcp", "0100007F:1F90", "http://db.example.com:8080", False),
    ],
)
def test_addresses_are_told_apart(
    name: str,
    place: str,
    url: str,
    is_refused: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    line = f"   0: {place} 00000000:0000 0A 00000000:00000000 00:00000000 00000000  4711 0 1\n"
    (tmp_path / name).write_text(HEAD + line)
    monkeypatch.setattr(listeners, "NET", tmp_path)
    monkeypatch.setattr(listeners, "_knows_uids", lambda: True)
    listeners.refuse_strangers(url, {0, 4711})
    if is_refused:
        with pytest.raises(ConfigurationError, match="uid 4711"):
            listeners.refuse_strangers(url, {0})
    else:
        listeners.refuse_strangers(url, {0})


def test_who_is_bound_to_the_address_comes_before_who_is_bound_to_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [
        f"   0: {place}:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000 {uid} 0 1\n"
        for place, uid in (("00000000", 4711), ("0100007F", 1000))
    ]
    (tmp_path / "tcp").write_text(HEAD + "".join(lines))
    monkeypatch.setattr(listeners, "NET", tmp_path)
    monkeypatch.setattr(listeners, "_knows_uids", lambda: True)
    listeners.refuse_strangers("http://127.0.0.1:8080", {1000})


def test_who_is_bound_to_all_of_ipv6_gets_no_connection_of_ipv4_where_somebody_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = "00000000:0000 0A 00000000:00000000 00:00000000 00000000"
    (tmp_path / "tcp").write_text(f"{HEAD}   0: 00000000:1F90 {end} 1000 0 1\n")
    (tmp_path / "tcp6").write_text(f"{HEAD}   0: {'0' * 32}:1F90 {end} 4711 0 1\n")
    monkeypatch.setattr(listeners, "NET", tmp_path)
    monkeypatch.setattr(listeners, "_knows_uids", lambda: True)
    listeners.refuse_strangers("http://127.0.0.1:8080", {1000})
    with pytest.raises(ConfigurationError):
        listeners.refuse_strangers("http://[::1]:8080", {1000})
