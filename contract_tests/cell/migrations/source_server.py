"""A PostgreSQL that is no instance: another user's, on loopback, with TLS of a CA of its own."""

import contextlib
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

from cell.engines.postgres import sources

PASSWORD = "sEcReT: \\of' the source"
USER = "owner"
READY_WITHIN_S = 60.0
SETTINGS = (
    *("wal_level=logical", "fsync=off", "max_wal_size=256MB", "shared_buffers=32MB"),
    *("listen_addresses=127.0.0.1", "ssl=on", "password_encryption=scram-sha-256"),
)


@dataclass
class SourceServer:
    folder: Path
    source: sources.Source
    port: int
    ca_pem: str
    settings: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def connect(self, user: str, database: str) -> "psycopg.Connection[tuple[Any, ...]]":
        return psycopg.connect(
            host="127.0.0.1",
            port=self.port,
            user=user,
            password=PASSWORD,
            dbname=database,
            autocommit=True,
        )

    def new_database(self) -> "SourceDatabase":
        name = f"shop_{secrets.token_hex(4)}"
        with self.connect("super", "postgres") as connection:
            connection.execute(f"CREATE DATABASE {name} OWNER {USER}".encode())
        return SourceDatabase(self, name)

    def start(self) -> None:
        # Another run of tests may have closed what all of them are in.
        let_in(self.folder)
        words = [*("-D", str(self.folder / "data"), "-p", str(self.port), "-k", str(self.folder))]
        for each in (*SETTINGS, *self.settings):
            words += ["-c", each]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*_as_nobody(), str(self.source.binaries / "postgres"), *words],
                stdout=log,
                stderr=log,
                cwd=self.folder,
            )
        began = time.monotonic()
        while True:
            try:
                return self.connect("super", "postgres").close()
            except psycopg.OperationalError:
                said = (self.folder / "log").read_text()[-2000:]
                assert time.monotonic() - began < READY_WITHIN_S, said
                time.sleep(0.02)

    def kill(self) -> None:
        """Every session ends where it is."""
        assert self.process is not None
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait()


@dataclass
class SourceDatabase:
    """One of the server's, for one test."""

    server: SourceServer
    name: str

    @property
    def ca_pem(self) -> str:
        return self.server.ca_pem

    @property
    def uri(self) -> str:
        """As it stands there, `sslmode` would turn TLS off: it has no effect."""
        where = f"localhost:{self.server.port}/{self.name}"
        return f"postgresql://{USER}:{quote(PASSWORD, safe='')}@{where}?sslmode=disable"

    def ask(self, sql: str, user: str = USER) -> list[tuple[Any, ...]]:
        with self.server.connect(user, self.name) as connection:
            found = connection.execute(sql.encode())
            return found.fetchall() if found.description else []

    def dump(self, *words: str) -> bytes:
        """By the server's own pg_dump."""
        program = str(self.server.source.binaries / "pg_dump")
        environment = {
            "PATH": os.environ["PATH"],
            "PGHOST": "127.0.0.1",
            "PGPORT": str(self.server.port),
            "PGUSER": USER,
            "PGPASSWORD": PASSWORD,
            "PGDATABASE": self.name,
        }
        command = [program, *words]
        return subprocess.run(command, env=environment, check=True, capture_output=True).stdout

    def left(self) -> list[str]:
        """What a migration left behind."""
        slots = "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
        publications = "SELECT pubname FROM pg_publication"
        return [str(name) for query in (slots, publications) for (name,) in self.ask(query)]


def let_in(folder: Path) -> None:
    """The server, which is no root."""
    for path in (folder, *folder.parents):
        if path.is_relative_to("/tmp") and path != Path("/tmp"):
            path.chmod(path.stat().st_mode | 0o011)


def _as_nobody() -> list[str]:
    if os.geteuid():
        return []
    uid = str(pwd.getpwnam("nobody").pw_uid)
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--"]


@contextlib.contextmanager
def running(folder: Path, major: str, *settings: str) -> Iterator[SourceServer]:
    """With a superuser `super`, and `owner`, who owns databases. Nobody is let in without TLS."""
    source = sources.best(sources.find())[major]
    folder.mkdir(parents=True)
    let_in(folder)
    ca_pem = write_certificates(folder)
    (folder / "password").write_text(PASSWORD)
    if not os.geteuid():
        for path in (folder, *folder.iterdir()):
            shutil.chown(path, "nobody")
    words = ["-D", str(folder / "data"), "-U", "super", "--pwfile", str(folder / "password")]
    options = ["-A", "scram-sha-256", "-E", "UTF8", "--locale=C", "--no-sync"]
    subprocess.run(
        [*_as_nobody(), str(source.binaries / "initdb"), *words, *options],
        check=True,
        capture_output=True,
        cwd=folder,
    )
    for name in ("server.crt", "server.key"):
        shutil.copy2(folder / name, folder / "data" / name)
        if not os.geteuid():
            shutil.chown(folder / "data" / name, "nobody")
    access = "hostssl all all 127.0.0.1/32 scram-sha-256\nlocal all all reject\n"
    (folder / "data" / "pg_hba.conf").write_text(access)
    made = SourceServer(folder, source, free_port(), ca_pem, settings)
    try:
        made.start()
        with made.connect("super", "postgres") as connection:
            named = PASSWORD.replace("'", "''")
            connection.execute(f"CREATE ROLE {USER} LOGIN REPLICATION PASSWORD '{named}'".encode())
        yield made
    finally:
        made.kill()


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def write_certificates(folder: Path) -> str:
    now = datetime.now(UTC)
    ca_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "CA of the source")])
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])

    def signed(subject: x509.Name, public: Any, *, is_ca: bool) -> x509.Certificate:
        builder = x509.CertificateBuilder(ca_name, subject, public, x509.random_serial_number())
        builder = builder.not_valid_before(now - timedelta(hours=1))
        builder = builder.not_valid_after(now + timedelta(days=1))
        builder = builder.add_extension(x509.BasicConstraints(is_ca, None), critical=True)
        if not is_ca:
            names = [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(ca_key, hashes.SHA256())

    ca = signed(ca_name, ca_key.public_key(), is_ca=True)
    certificate = signed(name, key.public_key(), is_ca=False)
    (folder / "server.crt").write_bytes(certificate.public_bytes(Encoding.PEM))
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "server.key").write_bytes(private)
    (folder / "server.key").chmod(0o600)
    return ca.public_bytes(Encoding.PEM).decode()
