"""Pastes the lines of `menagerie credentials` where such lines go, and reads what they print."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from clients.cli.lines import Place, line
from contract_tests.clients.node_packages import node_modules

DONE_S: Final = 120
PYTHON: Final = {"psycopg", "asyncpg", "sqlalchemy", "pymysql", "httpx", "meilisearch"}
NODE: Final = {"node-postgres", "mysql2", "ioredis"}
# What a client that opens a prompt is given to read.
SQL: Final = "SELECT 42 AS answer;\n"
COMMANDS: Final = "SET answer 42\nGET answer\n"
TYPED: Final = {
    "psql": SQL, "mariadb": SQL, "mysql": SQL, "redis-cli": COMMANDS, "valkey-cli": COMMANDS,
}  # fmt: skip


def pasted(
    place: Place, client: str, folder: Path, hosts_file: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Paste the line into a shell, Python or Node.js, and answer what is seen.

    With `hosts_file` it runs where that is the system's own, which only root can bring about.
    """
    text = line(client, place)
    environment = dict(os.environ)
    if client in PYTHON:
        text = f"{shlex.quote(sys.executable)} - <<'EOF'\n{text}\nEOF"
    elif client in NODE:
        environment["NODE_PATH"] = str(node_modules())
        text = f"node - <<'EOF'\n{text}\nEOF"
    elif shutil.which(client) is None:
        pytest.skip(f"{client} is not installed")
    shell = ["bash", "-c", text]
    if hosts_file is not None:
        given = f'mount --bind {shlex.quote(str(hosts_file))} /etc/hosts && exec bash -c "$0"'
        shell = ["unshare", "--mount", "bash", "-c", given, text]
    return subprocess.run(
        shell,
        input=TYPED.get(client, ""),
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=DONE_S,
        check=False,
    )
