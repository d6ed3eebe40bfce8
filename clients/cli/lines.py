"""Lines to paste: how each client of an engine connects, as it works on this machine.

Each verifies the certificate. Where the host's name does not resolve here, the lines give the
address beside the name, by what the client has for it; elsewhere they are the plain ones.
"""

import json
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urlencode

from clients.cli import line_templates as templates
from clients.cli import native
from clients.credentials import Credential
from clients.hosts import LOOPBACK, needs_address

GAP: Final = re.compile(r"<(\w+)>")


@dataclass(frozen=True)
class Place:
    """Where an instance is, whom to trust for it, and whether its name alone leads there."""

    engine: str
    credential: Credential
    ca_file: str

    @property
    def named(self) -> bool:
        return not needs_address(self.credential.host)

    @property
    def address(self) -> str:
        return self.credential.host if self.named else LOOPBACK

    def postgres_uri(self, scheme: str = "postgresql") -> str:
        options = {"sslmode": "verify-full", "sslrootcert": self.ca_file}
        options |= {} if self.named else {"hostaddr": LOOPBACK}
        return f"{self.uri(scheme)}?{urlencode(options, safe='/', quote_via=quote)}"

    def uri(self, scheme: str, host: str | None = None) -> str:
        one = self.credential
        login = f"{quote(one.username, safe='')}:{quote(one.password, safe='')}"
        return f"{scheme}://{login}@{host or one.host}:{one.port}/{quote(one.database, safe='')}"

    def values(self) -> dict[str, str]:
        """Answer what the templates name, as JSON, which Python and JavaScript both read."""
        known = {
            "host": self.credential.host, "port": self.credential.port, "address": self.address,
            "user": self.credential.username, "password": self.credential.password,
            "database": self.credential.database, "ca_file": self.ca_file,
            "base_url": self.credential.base_url,
            "url": f"https://{self.address}:{self.credential.port}/query",
            "libpq": self.postgres_uri(),
            "alchemy_postgres": self.postgres_uri("postgresql+psycopg"),
            "alchemy_mysql": self.uri("mysql+pymysql"),
            "dsn": self.uri("postgresql", self.address),
        }  # fmt: skip
        return {name: json.dumps(value, ensure_ascii=False) for name, value in known.items()}


def clients_of(engine: str) -> list[str]:
    """Answer the clients there are lines for, by the names their users know them by."""
    return list(CLIENTS.get(engine, {}))


def every_client() -> list[str]:
    return sorted({name for known in CLIENTS.values() for name in known})


def line(client: str, place: Place) -> str:
    """Answer the line for one client of the place's engine."""
    return CLIENTS[place.engine][client](place)


def _program(name: str) -> Callable[[Place], str]:
    """Answer who makes the line of an engine's own client; the password is in its environment."""

    def made(place: Place) -> str:
        words = native.shell_words(name, place.credential, place.ca_file)
        variable = native.PASSWORD_VARIABLES[name]
        return f"{variable}={shlex.quote(place.credential.password)} {shlex.join(words)}"

    return made


def _code(plain: str, by_address: str | None = None) -> Callable[[Place], str]:
    """Answer who fills a template: `plain` where the name resolves, else `by_address`."""

    def made(place: Place) -> str:
        text = plain if by_address is None or place.named else by_address
        values = place.values()
        # At once: a value may hold what another's place looks like.
        return GAP.sub(lambda gap: values[gap[1]], text.strip())

    return made


def curl(place: Place, statement: str = "SELECT 42 AS answer", secret: str = "") -> str:
    """Answer a query by curl, which reads the password where other programs cannot see it.

    `secret` is how a shell writes the password; where it is left out, it is the password itself.
    """
    one = place.credential
    words = [*_curl_words(place), f"{one.base_url}/query", "-H", "Content-Type: application/json"]
    words += ["-d", json.dumps({"sql": statement})]
    login = f"{shlex.quote(_curl_text(one.username))} "
    login += secret or shlex.quote(_curl_text(one.password))
    return f"printf 'user = \"%s:%s\"' {login} | {shlex.join(words)}"


def curl_of_a_search(place: Place) -> str:
    """Answer a list of the indexes by curl, which reads the key as `curl` reads the password."""
    one = place.credential
    words = [*_curl_words(place), f"{one.base_url}/indexes?limit=42"]
    key = shlex.quote(_curl_text(one.password))
    return f"printf 'header = \"Authorization: Bearer %s\"' {key} | {shlex.join(words)}"


def _curl_words(place: Place) -> list[str]:
    one = place.credential
    words = ["curl", "-sS", "-K", "-", "--cacert", place.ca_file]
    return words + ([] if place.named else ["--resolve", f"{one.host}:{one.port}:{LOOPBACK}"])


def _curl_text(value: str) -> str:
    """Answer the value as it stands between quotes in a file of curl's options."""
    return value.replace("\\", "\\\\").replace('"', '\\"')


POSTGRES: Final = {
    "psql": _program("psql"),
    "psycopg": _code(templates.PSYCOPG),
    "asyncpg": _code(templates.ASYNCPG, templates.ASYNCPG_BY_ADDRESS),
    "sqlalchemy": _code(templates.SQLALCHEMY_POSTGRES),
    "node-postgres": _code(templates.NODE_POSTGRES),
}
MYSQL: Final = {
    "mariadb": _program("mariadb"),
    "mysql": _program("mysql"),
    "pymysql": _code(templates.PYMYSQL, templates.PYMYSQL_BY_ADDRESS),
    "sqlalchemy": _code(templates.SQLALCHEMY_MYSQL, templates.SQLALCHEMY_MYSQL_BY_ADDRESS),
    "mysql2": _code(templates.MYSQL2, templates.MYSQL2_BY_ADDRESS),
}
RESP: Final = {
    "redis-cli": _program("redis-cli"),
    "valkey-cli": _program("valkey-cli"),
    "ioredis": _code(templates.IOREDIS),
}
HTTP: Final = {"curl": curl, "httpx": _code(templates.HTTPX, templates.HTTPX_BY_ADDRESS)}
SEARCH: Final = {
    "curl": curl_of_a_search,
    "meilisearch": _code(templates.MEILISEARCH, templates.MEILISEARCH_BY_ADDRESS),
}
CLIENTS: Final[Mapping[str, Mapping[str, Callable[[Place], str]]]] = {
    "postgres": POSTGRES, "timescaledb": POSTGRES, "mariadb": MYSQL, "mysql": MYSQL,
    "redis": RESP, "valkey": RESP, "duckdb": HTTP, "meilisearch": SEARCH,
}  # fmt: skip
