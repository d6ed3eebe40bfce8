"""SQL that is loaded: psql is kept from running commands of its own, whatever the file says."""

import io
import random

import pytest

from clients import postgres_tools
from clients.cli.restricting import TAIL_BYTES, Restricted
from clients.errors import ConfigurationError

HEAD = b"--\n-- PostgreSQL database dump\n--\n\n"
BODY = b"CREATE TABLE t (n int);\n" * 1000
END = b"--\n-- PostgreSQL database dump complete\n--\n\n"


class Pieces(io.BytesIO):
    """Answers less than was asked for, as a pipe does."""

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(random.randint(1, max(1, size or 1)))


def passed(content: bytes, source: type[io.BytesIO] = io.BytesIO) -> tuple[bytes, bytes]:
    """The key, and what psql reads after it."""
    restricted = Restricted(source(content))
    told = b"".join(iter(lambda: restricted.read(3000), b""))
    first, _, rest = told.partition(b"\n")
    command, key = first.split()
    assert command == b"\\restrict"
    return key, rest


@pytest.mark.parametrize("source", [io.BytesIO, Pieces])
@pytest.mark.parametrize("content", [b"", b"SELECT 1", BODY, HEAD + BODY + END])
def test_sql_goes_through_as_it_is(content: bytes, source: type[io.BytesIO]) -> None:
    key, rest = passed(content, source)
    assert rest == content
    assert len(key) == 64
    assert passed(content)[0] != key


def test_a_dumps_own_restriction_is_replaced() -> None:
    dump = HEAD + b"\\restrict a1B2\n\n" + BODY + END + b"\\unrestrict a1B2\n\n"
    assert passed(dump)[1] == HEAD + b"\n" + BODY + END


@pytest.mark.parametrize(
    "more",
    [
        b"\\unrestrict a1B2\n\\! id\n",
        b"\\unrestrict a1B2\n" + b"-" * (TAIL_BYTES + 1) + b"\n\\unrestrict a1B2\n",
        b"SELECT 1;\\restrict a1B2\n",
    ],
)
def test_commands_that_are_elsewhere_stay_to_be_refused(more: bytes) -> None:
    _, rest = passed(HEAD + b"\\restrict a1B2\n" + BODY + more)
    assert more.split(b"\n", maxsplit=1)[0] in rest


def test_programs_that_a_database_can_bend_are_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    version = "17.5"

    def found(program: str) -> list[postgres_tools.Tool]:
        del program
        major, minor = map(int, version.split("."))
        return [postgres_tools.Tool(postgres_tools.DEBIAN, major, minor)]

    monkeypatch.setattr(postgres_tools, "_found", found)
    with pytest.raises(ConfigurationError, match=r"found: 17\.5"):
        postgres_tools.fitting("pg_dump", 17)
    version = "17.6"
    assert postgres_tools.fitting("pg_dump", 17).minor == 6
