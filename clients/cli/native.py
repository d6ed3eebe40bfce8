"""The engines' own clients: which there are, and how each is told where to go and whom to trust."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode

from clients.credentials import Credential
from clients.errors import ConfigurationError
from clients.hosts import LOOPBACK, needs_address

# Engine: the clients that speak its protocol, best first.
POSTGRES: Final = ("psql",)
MYSQL: Final = ("mariadb", "mysql")
RESP: Final = ("valkey-cli", "redis-cli")
MONGODB: Final = ("mongosh",)
PROGRAMS: Final = {
    "postgres": POSTGRES, "timescaledb": POSTGRES, "questdb": POSTGRES, "mysql": MYSQL,
    "mariadb": MYSQL, "redis": RESP, "valkey": RESP, "mongodb": MONGODB, "ferretdb": MONGODB,
}  # fmt: skip
# What a shell understands within double quotes.
UNSAFE: Final = re.compile(r'[$`"\\!]')
# Each takes the password from its own variable, where other users of the machine cannot see it.
PASSWORD_VARIABLES: Final = {
    "psql": "PGPASSWORD", "mariadb": "MYSQL_PWD", "mysql": "MYSQL_PWD",
    "redis-cli": "REDISCLI_AUTH", "valkey-cli": "REDISCLI_AUTH",
}  # fmt: skip


def find(engine: str) -> str | None:
    """Answer the path of the best client there is for the engine."""
    return next((path for one in PROGRAMS.get(engine, ()) if (path := shutil.which(one))), None)


def wanted(engine: str) -> str:
    return " or ".join(PROGRAMS.get(engine, ())) or "no known client"


def command_line(
    program: str, credential: Credential, ca_file: str
) -> tuple[list[str], dict[str, str]]:
    """Answer the arguments and the environment for the client; secrets are in the latter only."""
    name = Path(program).name
    if name in POSTGRES:
        return [program], _psql_environment(credential, ca_file)
    if name in MYSQL:
        options = mysql_options(credential, ca_file, is_mariadb=_is_mariadb(program))
        return [program, *options], {"MYSQL_PWD": credential.password}
    if name in RESP:
        # Either knows its own variable, and valkey-cli knows Redis's in some versions.
        variables = dict.fromkeys(("REDISCLI_AUTH", "VALKEYCLI_AUTH"), credential.password)
        return [program, *resp_options(credential, ca_file)], variables
    raise ConfigurationError(
        f"{name} takes its password only among its arguments; use `menagerie credentials`"
    )


def _psql_environment(credential: Credential, ca_file: str) -> dict[str, str]:
    environment = {
        "PGHOST": credential.host, "PGPORT": str(credential.port), "PGUSER": credential.username,
        "PGPASSWORD": credential.password, "PGSSLMODE": "verify-full", "PGSSLROOTCERT": ca_file,
    }  # fmt: skip
    if credential.database:
        environment["PGDATABASE"] = credential.database
    # *.localhost does not resolve everywhere; the name is still what is verified.
    return environment | ({"PGHOSTADDR": LOOPBACK} if needs_address(credential.host) else {})


def _is_mariadb(program: str) -> bool:
    """Whether it is MariaDB's client, which Debian installs under MySQL's name too."""
    try:
        told = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)  # noqa: S603  found on PATH
    except OSError:
        return Path(program).name == "mariadb"
    return "mariadb" in told.stdout.lower()


def mysql_options(credential: Credential, ca_file: str, *, is_mariadb: bool) -> list[str]:
    """Answer the options for mariadb or mysql.

    MariaDB's client sends no server name in TLS before 11.4, nor does MySQL's unless told, so the
    user's name carries the first label of the host; the gateway takes it off. No version can be
    told to connect to one address and to verify another name: where *.localhost has to be
    reached at 127.0.0.1, the certificate is verified by its authority but not by its name, over a
    way that does not leave this machine. MariaDB's client does that wherever `--ssl-ca` is given
    (10.11: error 2026 with any other authority); from 11.4 on it verifies all or nothing.
    """
    local = needs_address(credential.host)
    if is_mariadb:
        verify = "--skip-ssl-verify-server-cert" if local else "--ssl-verify-server-cert"
    else:
        verify = "--ssl-mode=VERIFY_CA" if local else "--ssl-mode=VERIFY_IDENTITY"
    return [
        "--protocol=tcp",
        f"--host={LOOPBACK if local else credential.host}",
        f"--port={credential.port}",
        f"--user={credential.username}@{credential.host.partition('.')[0]}",
        f"--ssl-ca={ca_file}",
        verify,
        *([f"--database={credential.database}"] if credential.database else []),
    ]


def resp_options(credential: Credential, ca_file: str) -> list[str]:
    """Answer the options for valkey-cli or redis-cli, which verify the authority, not the name."""
    return [
        "-h", LOOPBACK if needs_address(credential.host) else credential.host,
        "-p", str(credential.port), "--tls", "--sni", credential.host, "--cacert", ca_file,
        "--user", credential.username, "-n", credential.database or "0",
    ]  # fmt: skip


def shell_words(name: str, credential: Credential, ca_file: str) -> list[str]:
    """Answer the words of a shell line that opens this client; the password is not among them."""
    if name in POSTGRES:
        return [name, _postgres_uri(credential, ca_file)]
    if name in MYSQL:
        return [name, *mysql_options(credential, ca_file, is_mariadb=_is_mariadb(name))]
    return [name, *resp_options(credential, ca_file)]


def shell_line(engine: str, credential: Credential, ca_file: str, statement: str) -> str:
    """Answer a line for a shell that runs the statement; it reads the password in `$PASSWORD`."""
    known = PROGRAMS[engine]
    name = engine if engine in known else known[0]
    name = f"{engine}-cli" if known == RESP else name
    if known == RESP:
        run = shlex.split(statement)
    else:
        run = ["-c" if known == POSTGRES else "--execute", statement]
    words = [*shell_words(name, credential, ca_file), *run]
    return f'{PASSWORD_VARIABLES[name]}="$PASSWORD" {" ".join(map(quoted, words))}'


def quoted(word: str) -> str:
    """Answer the word for a shell; SQL's own quotes stay readable where they can."""
    return f'"{word}"' if "'" in word and not UNSAFE.search(word) else shlex.quote(word)


def _postgres_uri(credential: Credential, ca_file: str) -> str:
    options = {"sslmode": "verify-full", "sslrootcert": ca_file}
    if needs_address(credential.host):
        options["hostaddr"] = LOOPBACK
    login, database = quote(credential.username, safe=""), quote(credential.database, safe="")
    place = f"{login}@{credential.host}:{credential.port}/{database}"
    return f"postgresql://{place}?{urlencode(options, safe='/')}"
