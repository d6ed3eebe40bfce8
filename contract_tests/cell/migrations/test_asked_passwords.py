"""A PostgreSQL, or who sits in front of one, gets no password in clear unless TLS is verified."""

import contextlib
import socket
import struct
from dataclasses import dataclass

import pytest

from contract_tests.cell.migrations.listening import listening
from contract_tests.cell.migrations.migration_calls import (
    CONNECTION,
    begun,
    connect,
    send,
    status_is,
    token,
)
from contract_tests.cell.migrations.source_server import USER, SourceDatabase, SourceServer
from contract_tests.cell.rig import Rig

PASSWORD = "aVerySecretWord"
NO_TLS = 80877103
IN_CLEAR, MD5 = struct.pack("!I", 3), struct.pack("!I", 5) + b"salt"
# What a server asks, one after another; each question is answered before the next.
QUESTIONS = {
    "at once": [IN_CLEAR],
    "after a proof": [MD5, IN_CLEAR],
}


@dataclass
class AskingSource:
    questions: list[bytes]
    heard: bytearray
    port: int = 0

    def serve(self, connected: socket.socket) -> None:
        with connected, contextlib.suppress(OSError, struct.error):
            while self._first(connected) == NO_TLS:
                connected.sendall(b"N")
            for each in self.questions:
                connected.sendall(b"R" + struct.pack("!I", 4 + len(each)) + each)
                self.heard += connected.recv(4096)

    @staticmethod
    def _first(connected: socket.socket) -> int:
        size, code = struct.unpack("!II", connected.recv(8, socket.MSG_WAITALL))
        if size > 8:
            connected.recv(size - 8, socket.MSG_WAITALL)
        return int(code)


@pytest.mark.parametrize("when", QUESTIONS)
def test_no_password_is_sent_in_clear(migrating: Rig, instance_id: str, when: str) -> None:
    with listening(AskingSource(QUESTIONS[when], bytearray())) as source:
        migration_id = begun(migrating, instance_id, CONNECTION)
        uri = f"postgresql://u:{PASSWORD}@127.0.0.1:{source.port}/name"
        answer = send(
            migrating, token(migrating, instance_id, migration_id), {"uri": uri, "tls": "off"}
        )
        assert answer.status_code == 200
        seen = status_is(migrating, instance_id, migration_id, "failed")
    assert PASSWORD.encode() not in source.heard
    assert "in clear" in seen["reason"], seen["reason"]


@pytest.mark.nightly
def test_a_server_that_is_known_gets_it(
    migrating: Rig, instance_id: str, source: SourceServer, shop: SourceDatabase
) -> None:
    rules = source.folder / "data" / "pg_hba.conf"
    former = rules.read_text()
    rules.write_text(f"hostssl {shop.name} {USER} 127.0.0.1/32 password\n{former}")
    shop.ask("SELECT pg_reload_conf()", "super")
    try:
        for tls, status in (("verify", "completed"), ("require", "failed")):
            migration_id = begun(migrating, instance_id, CONNECTION, dry_run=True)
            connect(migrating, instance_id, migration_id, shop, tls=tls)
            seen = status_is(migrating, instance_id, migration_id, status)
            assert status == "completed" or "in clear" in seen["reason"]
    finally:
        rules.write_text(former)
        shop.ask("SELECT pg_reload_conf()", "super")
