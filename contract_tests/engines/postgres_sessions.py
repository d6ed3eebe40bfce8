"""How the tests of PostgreSQL speak to it: psycopg on its socket, as the gateway would."""

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from cell.engines.driver import Login

if TYPE_CHECKING:
    from contract_tests.engines.conftest import Subject

NEWEST = ("postgres", None)
# Older versions go through the same code, and have their turn at night; where one differs, its
# tests name it.
VERSIONS = [
    NEWEST,
    *(pytest.param(("postgres", each), marks=pytest.mark.nightly) for each in ("16", "15")),
]
every_version = pytest.mark.parametrize("subject", VERSIONS, indirect=True)
newest = pytest.mark.parametrize("subject", [NEWEST], indirect=True)
every_version_shared = pytest.mark.parametrize("shared", VERSIONS, indirect=True)
newest_shared = pytest.mark.parametrize("shared", [NEWEST], indirect=True)
# From 16 on, which has vectors to keep; the way from 15 is as long and has its turn at night.
upgraded = pytest.mark.parametrize(
    "subject",
    [("postgres", "16"), pytest.param(("postgres", "15"), marks=pytest.mark.nightly)],
    indirect=True,
)
every_version_lent = pytest.mark.parametrize("lent", VERSIONS, indirect=True)
newest_lent = pytest.mark.parametrize("lent", [NEWEST], indirect=True)

Connection = psycopg.Connection[tuple[Any, ...]]


def session(subject: "Subject", login: Login | None = None, database: str = "app") -> Connection:
    login = login or subject.login
    return psycopg.connect(
        host=str(subject.site.run),
        user=login.username,
        password=login.password,
        dbname=database,
        autocommit=True,
    )


def superuser(subject: "Subject") -> Login:
    return Login("menagerie", subject.host.secret(subject.site, "postgres"))


def ask(subject: "Subject", statement: str, login: Login | None = None) -> list[tuple[Any, ...]]:
    """The rows of one statement; empty where it has none."""
    with session(subject, login) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def value(subject: "Subject", statement: str, login: Login | None = None) -> Any:
    return ask(subject, statement, login)[0][0]
