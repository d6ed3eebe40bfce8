"""A server that is hostile or broken costs its caller one line and an exit status, and no more."""

import gzip
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import httpx
import pytest
import yaml

from clients import answers, errors, transport
from clients.cli.app import DOCUMENTED_TOO, SHORTCUT_MODULES
from clients.cli.credentials import authorities
from clients.client import Client
from clients.credentials import Credential
from clients.names import may_match
from clients.profiles import Profiles
from clients.source import Source
from contract_tests.by_day import one_in
from contract_tests.clients.conftest import Cli, Ran
from contract_tests.clients.servers import Scripted
from contract_tests.clients.stand_in import ControlPlane
from contract_tests.clients.test_terminal import Play, play
from menagerie import contract

__all__ = ["play"]

EVIL: Final = "a\u202eb\x1b[2Jc\x9bd\x7fe"
DEEP: Final = "[" * 100_000 + "]" * 100_000


def path(plane: ControlPlane, rest: str = "") -> str:
    return f"/v1/orgs/{plane.world.org_id}/instances{rest}"


def is_one_line(ran: Ran) -> bool:
    """Not counting what helps: a hint, the id of the request."""
    lines = [one for one in ran.err.splitlines() if not one.startswith(("hint:", "request id:"))]
    return ran.code == 1 and len(lines) == 1 and lines[0].startswith("error: ")


@pytest.mark.parametrize(
    "body",
    [
        DEEP,
        '{"a":' * 200 + "1" + "}" * 200,
        "{",
        "",
        "null",
        "[]",
        "7",
        '"text"',
        '{"items": 7}',
        '{"items": [7]}',
        '{"items": [[1]], "next_cursor": 8}',
        '{"items": [], "next_cursor": {"a": 1}}',
        '{"items": null}',
    ],
)
def test_a_list_that_is_none(body: str, home: object, plane: ControlPlane, cli: Cli) -> None:
    answer: Scripted = (200, {}, body)
    plane.script("GET", path(plane), answer)
    ran = cli("instances", "list", "--all")
    assert "Traceback" not in ran.err
    assert is_one_line(ran) or ran.code == 0, ran
    plane.script("GET", path(plane), answer)
    assert is_one_line(cli("query", "sales", "SELECT 1"))


@pytest.mark.parametrize(
    "body", one_in(3, ["{}", "[]", "7", '"x"', '{"id": 7}', '{"url": 7}', DEEP])
)
@pytest.mark.parametrize(
    ("method", "rest", "command"),
    [
        ("GET", "", ("credentials", "{id}")),
        ("POST", "/credentials/reveal", ("credentials", "{id}")),
        ("GET", "/logs", ("logs", "{id}")),
        ("POST", "/console-sessions", ("console", "open", "{id}", "--no-browser")),
    ],
)
def test_what_is_missing_is_told(
    body: str,
    method: str,
    rest: str,
    command: tuple[str, ...],
    home: object,
    plane: ControlPlane,
    cli: Cli,
) -> None:
    sales = plane.world.add("sales")
    plane.script(method, path(plane, f"/{sales['id']}{rest}"), (200, {}, body))
    ran = cli(*(word.format(id=sales["id"]) for word in command))
    assert "Traceback" not in ran.err
    assert is_one_line(ran) or (ran.code, "7" in ran.out) == (0, True) or ran.code == 2, ran


@pytest.mark.parametrize("status", [400, 404, 500])
def test_a_deep_failure_is_a_failure(
    status: int, home: object, plane: ControlPlane, cli: Cli
) -> None:
    headers = {"Content-Type": "application/problem+json"}
    plane.script("GET", path(plane), (status, headers, DEEP))
    ran = cli("instances", "list")
    assert ran.err.startswith(f"error: HTTP {status} ({status})")


@pytest.mark.parametrize("cursors", [["1", "1"], ["1", "2", "1"]])
def test_pages_that_go_round_end(cursors: list[str], plane: ControlPlane, client: Client) -> None:
    for cursor in cursors:
        plane.script("GET", path(plane), (200, {}, {"items": [{}], "next_cursor": cursor}))
    with pytest.raises(errors.MalformedAnswer, match="have no end"):
        list(client.paginate("instances.list"))
    assert len(plane.asked("GET", "/instances")) == len(cursors)


def test_a_page_gives_no_more_than_was_asked_for(plane: ControlPlane, client: Client) -> None:
    plane.script("GET", path(plane), (200, {}, {"items": [{}] * 900, "next_cursor": None}))
    assert len(list(client.paginate("instances.list", limit=2))) == 2


def test_a_redirect_is_not_followed_and_takes_no_token(
    home: object, plane: ControlPlane, cli: Cli
) -> None:
    elsewhere = f"{plane.base_url.replace('127.0.0.1', 'localhost')}/stolen"
    for status in (301, 302, 307, 308):
        plane.script("GET", path(plane), (status, {"Location": elsewhere}, None))
        ran = cli("instances", "list")
        assert ran.code == 1
        assert "redirects to" in ran.err
        assert "not followed" in ran.err
    assert not plane.asked("GET", "/stolen")


def test_an_answer_has_a_size(
    plane: ControlPlane, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers.whole, "__kwdefaults__", {"within_s": 60, "bytes_max": 1 << 20})
    body = {"items": ["x" * (1 << 21)], "next_cursor": None}
    plane.script("GET", path(plane), (200, {}, body))
    with pytest.raises(errors.MalformedAnswer, match="larger than 1 MiB"):
        client.call("instances.list")


@contextmanager
def answering(*parts: bytes, hold: threading.Event | None = None) -> Iterator[str]:
    """A server that says this to each connection, and then waits with the connection open."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ended = hold or threading.Event()

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65_536)
                    for part in parts:
                        connection.sendall(part)
                    ended.wait(30)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            ended.set()
            listener.shutdown(socket.SHUT_RDWR)


HEAD: Final = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"


@pytest.mark.parametrize("encoding", ["gzip", "GZIP", "gzip, gzip, gzip", "br", "zstd", "what"])
def test_nothing_compressed_is_unpacked(encoding: str) -> None:
    """Three times over, a few hundred bytes are gigabytes; and the first piece is all of it."""
    packed = b" " * (8 << 20)
    for _ in range(3):
        packed = gzip.compress(packed)
    head = HEAD + f"content-encoding: {encoding}\r\ncontent-length: {len(packed)}\r\n\r\n".encode()
    with answering(head, packed) as url, transport.open_http(url) as http:
        assert http.headers["accept-encoding"] == "identity"
        with pytest.raises(errors.MalformedAnswer, match="compressed"):
            http.send(http.build_request("GET", url), stream=True)


@pytest.mark.nightly
def test_a_command_says_that_an_answer_was_compressed(
    home: object, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = gzip.compress(b"{}")
    head = HEAD + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(packed)
    with answering(head, packed) as url:
        monkeypatch.setenv("MENAGERIE_BASE_URL", url)
        monkeypatch.setenv("MENAGERIE_API_KEY", "mk_none")
        ran = cli("engines", "list")
    assert (ran.code, "sent a compressed answer" in ran.err) == (1, True)


def test_an_answer_has_a_time() -> None:
    """Each byte comes before a read would time out; the answer never ends."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stopped = threading.Event()

        def drip() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(HEAD + b"content-length: 99999\r\n\r\n")
                while not stopped.wait(0.02):
                    try:
                        connection.sendall(b" ")
                    except OSError:
                        return

        threading.Thread(target=drip, daemon=True).start()
        with httpx.Client(timeout=60) as http:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            begun = http.send(http.build_request("GET", url), stream=True)
            with pytest.raises(errors.ConnectionFailed, match="did not finish its answer"):
                answers.whole(begun, within_s=0.2)
        stopped.set()


@pytest.mark.parametrize("after", ["\xb2", "9" * 400, "Fri, 99 Foo 99999 99:99:99 GMT", "-1", "x"])
def test_any_retry_after_is_borne(after: str, plane: ControlPlane, client: Client) -> None:
    headers = {"Retry-After": after, "Content-Type": "application/problem+json"}
    plane.script("GET", path(plane), *[(503, headers, {"title": "Away"})] * 5)
    with pytest.raises(errors.ServiceFailed):
        client.call("instances.list")


@pytest.mark.parametrize(
    "change",
    [
        {"host": "../../../.ssh/x"},
        {"host": "-oProxyCommand=x"},
        {"host": "a b"},
        {"host": 7},
        {"port": "1"},
        {"port": True},
        {"port": 70_000},
        {"password": "a\x1b[2J"},
        {"password": "\u202e"},
        {"password": None},
        {"username": "a\nb"},
        {"username": ""},
        {"username": "$(touch x)"},
        {"username": "<password>"},
        {"username": "-oProxyCommand=x"},
        {"username": "app:x"},
        {"username": "app@elsewhere.example.com"},
        {"host": "db.example.com\n"},
        {"uri": "postgresql://db.example.com/a b"},
        {"uri": "postgresql://db.example.com/$(touch x)"},
        {"uri": "postgresql://db.example.com/<password>"},
        {"uri": "postgresql://[db.example.com/app"},
        {"uri": ["x"]},
        {"overlap_until": "\x07"},
    ],
)
def test_a_credential_is_what_may_stand_in_a_shell(change: dict[str, Any]) -> None:
    sound = {"username": "app", "password": "pw", "host": "db.example.com", "port": 5432}
    sound |= {"uri": "postgresql://app:pw@db.example.com:5432/x"}
    assert Credential.parse(sound).port == 5432
    with pytest.raises(errors.MalformedAnswer, match=rf"not a credential: {next(iter(change))} "):
        Credential.parse({**sound, **change})


def test_a_document_no_commands_can_be_made_of_is_not_kept(folder: Path) -> None:
    source = Source("http://evil.example", folder / "cache", contract.shipped())
    broken: list[dict[str, Any]] = [{"paths": []}, {"paths": {"/x": {"get": 7}}}, {}, {"paths": 7}]
    broken += [{"paths": {"/x": {"get": {"operationId": name}}}} for name in (5, None, "")]
    # Behind the server's URL these would name another host, to which the request would go.
    elsewhere = ("@127.0.0.1:1/x", "//127.0.0.1/x", ":1/x", ".evil.example/x", "x")
    broken += [{"paths": {path: {"get": {"operationId": "x.get"}}}} for path in elsewhere]
    for raw in broken:
        found = source.current(lambda _, raw=raw: ("e", raw))  # type: ignore[misc]
        assert found.operations["instances.list"]
        # As a version that was less careful may have left it.
        source._write(source._copy, {"etag": "e", "fetched_at": time.time(), "document": raw})
        assert source.at_hand().operations["instances.list"]


@pytest.mark.parametrize("form", one_in(2, ["json", "yaml"]))
def test_what_is_read_by_programs_drives_no_terminal(
    form: str, play: Play, plane: ControlPlane, cli: Cli
) -> None:
    sales = plane.world.add("sales", region=EVIL)
    code, screen = play("instances", "get", "sales", "-o", form, columns=200)
    assert code == 0
    assert not {"\u202e", "\x9b", "\x7f"} & set(screen)
    assert "\x1b[2J" not in screen
    assert "u202e" in screen.lower()
    # Into a pipe goes what came, and it is still JSON and YAML.
    out = cli("instances", "get", "sales", "-o", form).out
    read = json.loads(out) if form == "json" else yaml.safe_load(out)
    assert read["region"] == EVIL
    assert read["id"] == sales["id"]


@pytest.mark.nightly
def test_names_of_members_drive_no_terminal(play: Play, plane: ControlPlane) -> None:
    """As columns that have no room, as columns, and over the table of a list in a record."""
    title = "\x1b]0;owned\x07"
    row = {"id": "inst_1", **{f"{title}{number}": "x" * 30 for number in range(8)}}
    path = f"/v1/orgs/{plane.world.org_id}/instances"
    plane.script("GET", path, (200, {}, {"items": [row], "next_cursor": None}))
    _, screen = play("instances", "list", columns=60)
    assert "columns not shown" in screen
    assert "\x1b]" not in screen
    plane.world.add("costs", **{title: [{"a": 1}]})
    _, screen = play("instances", "get", "costs", columns=200)
    assert "owned" in screen.replace("\r\n", "")
    assert "\x1b]" not in screen


@pytest.mark.parametrize(
    "pattern", ["^(a+)+$", "^(a|a)*$", "^" + "a*" * 30 + "$", "^(a{1,60}){1,60}$", "("]
)
def test_a_pattern_that_could_take_for_ever_is_left_to_the_server(pattern: str) -> None:
    began = time.monotonic()
    assert may_match(pattern, "a" * 60 + "!")
    assert time.monotonic() - began < 10


def test_a_plain_pattern_is_checked() -> None:
    pattern = "^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$"
    assert [may_match(pattern, name) for name in ("sales-1", "Sales", "a" * 65)] == [
        True,
        False,
        True,
    ]


def test_a_document_puts_no_command_in_the_place_of_ours(
    home: object, plane: ControlPlane, cli: Cli
) -> None:
    """`profiles use` says whom to talk to next, `login` asks for a password."""
    ours = sorted(SHORTCUT_MODULES.keys() - DOCUMENTED_TOO)
    for name in ours:
        for verb in ("use", "list", "sales"):
            operation = {"operationId": f"{name}.{verb}", "tags": ["X"], "responses": {}}
            plane.document["paths"][f"/v1/{name}/{verb}"] = {"post": operation}
    plane.etag = '"two"'
    cli("profiles", "set", "here", f"base_url={plane.base_url}", f"api_key={plane.world.api_key}")
    cli("profiles", "set", "other", "base_url=https://other.example.com")
    # One that the document lacks: the server is asked for a newer one.
    cli("dice", "roll")
    assert "/openapi.json" in [one.path for one in plane.seen]
    plane.seen.clear()
    assert "other.example.com" in cli("profiles", "list").out
    assert cli("profiles", "use", "other").code == 0
    for name in ours:
        cli(name, "sales", "--help")
    assert plane.seen == []
    assert Profiles.read().active == "other"


def test_authorities_are_kept_by_server(folder: Path) -> None:
    """Two servers name the same host: programs of the one go on to trust whom they trusted."""
    login = Credential("app", "p", "sales.fra.example.com", 5432, "postgres://h/app")

    def kept(base_url: str, pem: str) -> Path:
        client = SimpleNamespace(ca_file=None, base_url=base_url)
        endpoint: Any = SimpleNamespace(client=client, ca_pem=lambda: pem)
        return Path(authorities(endpoint, login))

    one = kept("https://one.example.com", "ONE")
    two = kept("https://two.example.com", "TWO")
    assert (one.read_text(), two.read_text()) == ("ONE", "TWO")
    assert one == kept("https://one.example.com", "ONE")
