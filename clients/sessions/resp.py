"""Commands on Redis and Valkey: one command a statement, by the words a shell would make of it."""

import json
import shlex
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from valkey import connection as resp
from valkey import exceptions

from clients import errors
from clients.credentials import Credential
from clients.hosts import LOOPBACK, is_local
from clients.sessions.session import (
    CONNECT_TIMEOUT_S,
    INVALID,
    UNAUTHORIZED,
    UNAVAILABLE,
    Answer,
    Result,
    Session,
)
from clients.transport import Authorities

PLACEHOLDER: Final = "?"
# They turn the connection into a stream that does not end.
STREAMS: Final = frozenset({"MONITOR", "PSUBSCRIBE", "SSUBSCRIBE", "SUBSCRIBE", "SYNC", "PSYNC"})
NOT_THE_COMMAND: Final = ("LOADING", "OOM", "MISCONF", "MASTERDOWN", "max number of clients")
REFUSED: Final = ("WRONGPASS", "NOAUTH")


class RespSession(Session):
    """Values stand for words that are `?`. A map's answer has two columns, any other has one."""

    def __init__(self, credential: Credential, authorities: Authorities) -> None:
        super().__init__(credential, authorities)
        self._connection: Any = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.disconnect()
            self._connection = None

    def version(self) -> str:
        told = self.query("INFO server").rows[0][0]
        facts = dict(line.split(":", 1) for line in str(told).splitlines() if ":" in line)
        if "valkey_version" in facts:
            return f"Valkey {facts['valkey_version']}"
        return f"Redis {facts.get('redis_version', '')}"

    def query(self, statement: str, params: Sequence[Any] | None = None) -> Result:
        command = words(statement, params or ())
        connection = self._open()
        try:
            started = time.perf_counter()
            connection.send_command(*command)
            reply = connection.read_response()
        except exceptions.ValkeyError as error:
            raise self._told(error) from error
        except OSError as error:
            self.close()
            raise _unreachable(self.credential.host, error) from error
        except BaseException:
            # The reply to this command would be taken for the next one's.
            self.close()
            raise
        if command[0].upper() == "QUIT":
            self.close()
        elapsed_s = time.perf_counter() - started
        return _answer(reply).result(elapsed_s)

    def _open(self) -> Any:
        if self._connection is None:
            connection: Any = _Connection(self.credential, self._authorities.context())
            try:
                connection.connect()
            except exceptions.ValkeyError as error:
                if isinstance(error, exceptions.AuthenticationError) or (
                    str(error).startswith(REFUSED)
                ):
                    raise errors.QueryFailed(UNAUTHORIZED, str(error)) from error
                if isinstance(error, exceptions.ResponseError):
                    # There is no command yet that could be wrong.
                    raise errors.QueryFailed(UNAVAILABLE, str(error)) from error
                raise self._told(error) from error
            except OSError as error:
                raise _unreachable(self.credential.host, error) from error
            self._connection = connection
        return self._connection

    def _told(self, error: exceptions.ValkeyError) -> errors.ClientError:
        """Answer the error in the server's own words, told apart by whose fault it is."""
        said = str(error)
        if isinstance(error, (exceptions.ConnectionError, exceptions.TimeoutError)) and not (
            isinstance(error, (exceptions.AuthenticationError, exceptions.BusyLoadingError))
        ):
            self.close()
            return _unreachable(self.credential.host, error)
        status = UNAVAILABLE if said.startswith(NOT_THE_COMMAND) else INVALID
        return errors.QueryFailed(status, said)


def _unreachable(host: str, error: Exception) -> errors.InstanceUnreachable:
    return errors.InstanceUnreachable(f"cannot reach {host}: {error}")


class _Connection(resp.SSLConnection):
    def __init__(self, credential: Credential, context: ssl.SSLContext) -> None:
        super().__init__(  # type: ignore[no-untyped-call]  # valkey has few types
            host=credential.host, port=credential.port, db=int(credential.database or 0),
            username=credential.username, password=credential.password,
            socket_timeout=None, protocol=3, lib_name=None, lib_version=None,
        )  # fmt: skip
        self._context = context

    def _connect(self) -> ssl.SSLSocket:
        # *.localhost does not resolve everywhere; the name is still what is verified.
        address = LOOPBACK if is_local(self.host) else self.host
        plain = socket.create_connection((address, self.port), CONNECT_TIMEOUT_S)
        try:
            secured = self._context.wrap_socket(plain, server_hostname=self.host)
        except BaseException:
            plain.close()
            raise
        return secured

    def on_connect(self) -> None:
        super().on_connect()  # type: ignore[no-untyped-call]  # see above
        # From here on a command may block for as long as it needs.
        if self._sock is not None:
            self._sock.settimeout(None)


def words(command: str, params: Sequence[Any]) -> list[str]:
    """Answer the command's words, with the values where `?` stands."""
    try:
        split = shlex.split(command)
    except ValueError as error:
        raise errors.QueryFailed(INVALID, f"cannot parse the command: {error}") from error
    if not split:
        raise errors.QueryFailed(INVALID, "the command is empty")
    if split[0].upper() in STREAMS:
        raise errors.QueryFailed(
            INVALID, f"{split[0].upper()} does not end by itself: use redis-cli or valkey-cli"
        )
    if not params:
        return split
    given = iter(params)
    try:
        filled = [_word(next(given)) if word == PLACEHOLDER else word for word in split]
    except StopIteration:
        raise errors.QueryFailed(INVALID, "there are more `?` than values") from None
    if next(given, _END) is not _END:
        raise errors.QueryFailed(INVALID, "there are more values than `?`")
    return filled


_END: Final = object()


def _word(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, (bool, dict, list)):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def _answer(reply: Any) -> Answer:
    plain = _plain(reply)
    if isinstance(plain, Mapping):
        answer = Answer(["field", "value"], ["text", _kind(plain.values())])
        for pair in plain.items():
            answer.add(pair)
        return answer
    rows = plain if isinstance(plain, list) else [plain]
    answer = Answer(["reply"], [_kind(rows)])
    for one in rows:
        answer.add([one])
    return answer


def _plain(reply: Any) -> Any:
    """Answer the reply with its bytes as text; what is no UTF-8 is escaped."""
    if isinstance(reply, bytes):
        return reply.decode(errors="backslashreplace")
    if isinstance(reply, Mapping):
        return {str(_plain(name)): _plain(value) for name, value in reply.items()}
    if isinstance(reply, (list, tuple, set, frozenset)):
        return [_plain(one) for one in reply]
    return f"(error) {reply}" if isinstance(reply, Exception) else reply


def _kind(values: Any) -> str:
    """Answer what the values are, in one word."""
    kinds = {_NAMES.get(type(one), "text") for one in values if one is not None}
    return kinds.pop() if len(kinds) == 1 else "any"


_NAMES: Final[Mapping[type, str]] = {
    int: "integer", float: "double", bool: "boolean", list: "array", dict: "map",
}  # fmt: skip
