"""What a tenant of Redis or Valkey may do, and what not, however it is asked."""

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from contract_tests.attacks.statements import fill, said, words
from contract_tests.engines.conftest import Subject
from contract_tests.engines.resp_administrator import secret
from contract_tests.engines.speakers import ONCE

pytestmark = pytest.mark.parametrize("subject", ["redis", "valkey"], indirect=True)

REFUSED = [fill(line) for line in said("redis", outcome="refused")]
ALLOWED = [
    "PING",
    "HELLO",
    "SELECT 15",
    "SELECT 0",
    "SET key value EX 100",
    "GETEX key PERSIST",
    "KEYS *",
    "SCAN 0 MATCH k* COUNT 100",
    "DBSIZE",
    "TYPE key",
    "OBJECT ENCODING key",
    "MEMORY USAGE key",
    "INFO",
    "INFO server",
    "RPUSH list 3 1 2",
    "SORT list",
    "ZADD scores 1 a",
    "HSET hash field value",
    "XADD stream * field value",
    "XGROUP CREATE stream group 0",
    "PFADD visitors a b",
    "GEOADD places 13.36 38.11 x",
    "SETBIT bits 7 1",
    "PUBLISH channel message",
    "MULTI",
    "INCR counter",
    "EXEC",
    "EVAL 'return redis.call([[SET]], KEYS[1], ARGV[1])' 1 scripted yes",
    "SCRIPT LOAD 'return 1'",
    "SCRIPT FLUSH",
    "FUNCTION LOAD '#!lua name=lib\nredis.register_function([[one]], function() return 1 end)'",
    "FCALL one 0",
    "FUNCTION LIST",
    "ACL WHOAMI",
    "ACL CAT",
    "CLIENT SETNAME me",
    "CLIENT GETNAME",
    "CLIENT ID",
    "CLIENT INFO",
    "CLIENT LIST",
    "CLIENT TRACKING off",
    "COMMAND COUNT",
    "ROLE",
    "LASTSAVE",
    "SLOWLOG GET",
    "LATENCY LATEST",
    "TIME",
    "SWAPDB 0 1",
    "FLUSHDB",
    "FLUSHALL",
    "RESET",
]
# What scripts of other servers, or of these before they were mended, could leave the sandbox by.
ESCAPES = [fill(script) for script in said("redis", "script")]


@pytest.fixture
def tenant(running: Subject) -> Iterator[redis.Redis]:
    path, login = str(running.site.socket), running.login
    with redis.Redis(
        unix_socket_path=path,
        username=login.username,
        password=login.password,
        single_connection_client=True,
        decode_responses=True,
    ) as client:
        yield client


def ask(client: redis.Redis, *command: Any) -> Any:
    """The server's own answer, not what the library makes of it."""
    connection = client.connection or client.connection_pool.get_connection()
    connection.send_command(*command)  # type: ignore[no-untyped-call]
    return connection.read_response()  # type: ignore[no-untyped-call]


def test_what_reaches_beyond_the_instance_is_refused(tenant: redis.Redis) -> None:
    for line in REFUSED:
        # Modules and debugging are shut off for everybody, before rights are looked at.
        with pytest.raises(redis.exceptions.ResponseError, match=r"permissions|not allowed"):
            ask(tenant, *line.split())
    assert ask(tenant, "PING") == "PONG"


def test_scripts_and_functions_may_no_more_than_who_calls_them(tenant: redis.Redis) -> None:
    call = "return redis.call(unpack(ARGV))"
    library = (
        "#!lua name=hostile\nredis.register_function('f', function(_, a) "
        "return redis.call(unpack(a)) end)"
    )
    ask(tenant, "FUNCTION", "LOAD", library)
    for line in REFUSED:
        for how in (("EVAL", call, 0), ("FCALL", "f", 0)):
            # By the user's rights, or as one that no script may call at all.
            with pytest.raises(redis.exceptions.ResponseError):
                ask(tenant, *how, *line.split())
    assert ask(tenant, "ACL", "WHOAMI") == "app"


def test_scripts_find_nothing_of_the_system(tenant: redis.Redis) -> None:
    for script in ESCAPES:
        try:
            found = ask(tenant, "EVAL", script, 0)
        except redis.exceptions.ResponseError:
            continue
        # Bytecode of a script's own is the worst that may run; none reads a file.
        assert found in {None, 1}, script
    assert ask(tenant, "EVAL", "return redis.call('PING').ok", 0) == "PONG"


def test_what_everyday_clients_send_works(tenant: redis.Redis) -> None:
    refused = {}
    for line in ALLOWED:
        try:
            ask(tenant, *words(line))
        except redis.exceptions.ResponseError as error:
            refused[line] = str(error)
    assert refused == {}


def test_nobody_gets_in_without_a_password_or_as_somebody_else(running: Subject) -> None:
    path = str(running.site.socket)
    for username, password in (
        (None, None),
        (None, running.login.password),
        ("default", running.login.password),
        ("default", ""),
        ("menagerie", running.login.password),
        ("app", ""),
        ("app", "menagerie"),
    ):
        with (
            redis.Redis(
                unix_socket_path=path, username=username, password=password, retry=ONCE
            ) as client,
            pytest.raises(redis.exceptions.RedisError, match=r"(?i)auth|pass"),
        ):
            client.get("key")


def test_the_administrator_can_read_nothing(running: Subject, tenant: redis.Redis) -> None:
    tenant.set("key", "private")
    path, password = (
        str(running.site.socket),
        secret(running),
    )
    with redis.Redis(unix_socket_path=path, username="menagerie", password=password) as client:
        assert client.ping()
        for line in ("GET key", "KEYS *", "EVAL 'return 1' 0", "FLUSHALL", "SHUTDOWN", "MONITOR"):
            with pytest.raises(redis.exceptions.NoPermissionError):
                ask(client, *words(line))
        # What only a start may set stays shut even to it.
        for line in (
            "CONFIG SET dir /tmp",
            "CONFIG SET dbfilename x.so",
            "CONFIG SET enable-module-command yes",
            "CONFIG SET aclfile /tmp/x",
            "CONFIG SET unixsocket /tmp/x",
        ):
            with pytest.raises(redis.exceptions.RedisError):
                ask(client, *words(line))


def test_files_of_users_hold_hashes_only(running: Subject) -> None:
    new = running.new_login()
    running.accept(new, running.login)
    known = secret(running)
    for path in running.site.directory.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            for password in (new.password, running.login.password, known):
                assert password.encode() not in content, path
