"""A login of the cell's is let in by a server that proves to have its verifier, and by no other."""

import base64
import hmac
import itertools
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cell.engines.postgres import scram
from contract_tests.gateway.postgres_clients import startup
from contract_tests.gateway.scram_client import ScramClient, authentication, message
from gateway.cancels import Cancels
from gateway.protocols.interface import FirstRequest
from gateway.protocols.postgres import PostgresDialogue
from gateway.protocols.postgres_login import MESSAGE_MAX_BYTES, ScramVerifier
from gateway.refusal import Refusal

PASSWORD, SALT = "of the cell", b"sixteen bytes of"
OK, READY = authentication(0), message(b"Z", b"I")
LET_IN = OK + message(b"S", b"a\0b\0") + READY
MECHANISMS = authentication(10, b"SCRAM-SHA-256\0\0")
STEPS = st.lists(st.integers(1, 400), max_size=8)


def first(iterations: str, salt: str) -> bytes:
    nonce = "fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j"
    return authentication(11, f"r={nonce},s={salt},i={iterations}".encode())


# Of a server; one is not made for it, as its keys take their time.
FIRST = first("4096", base64.b64encode(SALT).decode())


class Server:
    """Has one verifier, and answers as PostgreSQL does."""

    def __init__(
        self, password: str = PASSWORD, salt: bytes = SALT, iterations: int = 4096
    ) -> None:
        self.verifier = scram.verifier(password, salt, iterations)
        _, salting, keys = self.verifier.split("$")
        self._salting = salting
        self._key = base64.b64decode(keys.partition(":")[2])

    def first(self) -> bytes:
        return first(*self._salting.split(":"))

    def final(self, signed: bytes) -> bytes:
        made = hmac.digest(self._key, signed, "sha256")
        return authentication(12, b"v=" + base64.b64encode(made))


def begun(
    user: str = "app_2", early: bytes = b"", known: str = "app_2"
) -> tuple[PostgresDialogue, bytes]:
    """The dialogue, and what the server hears of it first."""
    dialogue = PostgresDialogue(Cancels(1))
    startup = ScramClient(user, "").startup({"database": "app"})
    found = dialogue.begin(bytearray(startup + early))
    assert isinstance(found, FirstRequest)
    proof = ScramVerifier.parse(scram.without_login(Server().verifier))
    return dialogue, dialogue.opened(found.first, "inst_x", {b"app_2": proof}).to_backend


def talked(server: Server, password: str = PASSWORD) -> tuple[PostgresDialogue, bytes, bytes]:
    """As far as the proof; then what the server says of it, and what follows."""
    dialogue, _ = begun()
    client = ScramClient("app_2", password)
    assert dialogue.from_backend(MECHANISMS).to_client == MECHANISMS
    assert dialogue.from_client(client.initial()).to_backend == client.initial()
    asked = server.first()
    assert dialogue.from_backend(asked).to_client == asked
    client.hear(asked[9:])
    proof = client.proof()
    assert dialogue.from_client(proof).to_backend == proof
    return dialogue, server.final(client.signed), LET_IN


def test_a_server_with_the_cells_verifier_lets_in() -> None:
    dialogue, final, rest = talked(Server())
    turn = dialogue.from_backend(final + rest)
    assert (turn.to_client, turn.spliced, turn.suspect) == (final + rest, True, False)
    assert dialogue.from_client(b"anything").to_backend == b"anything"


@pytest.mark.parametrize("lie", [b"", b"v=", b"v=AAAA", b"e=other-error", b"v=%", b"V="])
def test_a_signature_that_is_none_of_ours_lets_nobody_in(lie: bytes) -> None:
    dialogue, _, rest = talked(Server())
    refused(lambda: dialogue.from_backend(authentication(12, lie) + rest))


def test_a_server_with_another_key_lets_nobody_in() -> None:
    """Salt and iterations are ours, and the password is the one that it was given."""
    dialogue, final, rest = talked(Server("of a former holder"), "of a former holder")
    refused(lambda: dialogue.from_backend(final + rest))


@pytest.mark.parametrize(
    "other", [{"salt": b"another salt...."}, {"iterations": 4095}, {"iterations": 2_000_000}]
)
def test_other_salts_and_iterations_are_not_even_asked_for(other: dict[str, Any]) -> None:
    server = Server(**other)
    dialogue, _ = begun()
    dialogue.from_backend(MECHANISMS)
    dialogue.from_client(ScramClient("app_2", PASSWORD).initial())
    refused(lambda: dialogue.from_backend(server.first()))


@pytest.mark.parametrize(
    "said",
    [
        LET_IN,
        authentication(3),
        authentication(5, b"salt"),
        authentication(7),
        authentication(10, b"SCRAM-SHA-256-PLUS\0\0"),
        authentication(10, b"OAUTHBEARER\0\0"),
        authentication(12, b"v=AAAA"),
        FIRST,
        message(b"S", b"a\0b\0"),
        message(b"K", b"12345678"),
        READY,
        message(b"R", b""),
        message(b"R", b"\0\0\0"),
    ],
)
def test_no_other_way_in_is_taken(said: bytes) -> None:
    """Trust, cleartext, MD5, GSS, and whatever comes out of turn."""
    dialogue, _ = begun()
    refused(lambda: dialogue.from_backend(said))


@pytest.mark.parametrize("said", [OK, LET_IN, MECHANISMS, FIRST, READY])
def test_no_step_is_left_out(said: bytes) -> None:
    dialogue, _, _ = talked(Server())
    refused(lambda: dialogue.from_backend(said))


@given(cuts=STEPS, early=st.binary(max_size=60))
def test_what_is_sent_with_the_proof_waits_for_the_signature(cuts: list[int], early: bytes) -> None:
    """However messages are cut, and from whichever end."""
    client, server = ScramClient("app_2", PASSWORD), Server()
    dialogue, heard = begun()
    said = b""

    def hear(content: bytes) -> None:
        nonlocal heard, said
        for part in cut(content, cuts):
            turn = dialogue.from_backend(part)
            heard, said = heard + turn.to_backend, said + turn.to_client

    def say(content: bytes) -> None:
        nonlocal heard
        for part in cut(content, cuts):
            heard += dialogue.from_client(part).to_backend

    startup = client.startup({"database": "app"})
    say(client.initial())
    assert heard == startup
    hear(MECHANISMS)
    assert heard == startup + client.initial()
    hear(message(b"N", b"SNOTICE\0\0") + server.first())
    client.hear(server.first()[9:])
    proof = client.proof()
    say(proof + early)
    assert heard == startup + client.initial() + proof
    hear(server.final(client.signed))
    assert heard == startup + client.initial() + proof + early
    assert said.endswith(server.final(client.signed))


def cut(content: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted({each % len(content) for each in cuts}), len(content)] if content else []
    return [content[start:stop] for start, stop in itertools.pairwise(edges)]


def test_what_comes_with_the_startup_packet_waits_too() -> None:
    client = ScramClient("app_2", PASSWORD)
    dialogue, heard = begun(early=client.initial() + b"Q")
    assert heard == client.startup({"database": "app"})
    assert dialogue.from_backend(MECHANISMS).to_backend == client.initial()


@pytest.mark.parametrize(
    "said",
    [
        message(b"Q", b"SELECT 1\0"),
        message(b"p", b"a password\0"),
        message(b"p", b"SCRAM-SHA-256-PLUS\0\0\0\0\x08p=x,,n=,r=1"),
        message(b"p", b"SCRAM-SHA-256\0\xff\xff\xff\xff"),
        message(b"p", b""),
        b"p\0\0\0\1",
        b"p\xff\xff\xff\xff",
        b"p" * (MESSAGE_MAX_BYTES + 1),
    ],
)
def test_a_client_that_says_anything_else_is_refused(said: bytes) -> None:
    dialogue, _ = begun()
    dialogue.from_backend(MECHANISMS)
    with pytest.raises(Refusal) as refusal:
        dialogue.from_client(said)
    assert refusal.value.kind == "malformed"


def test_a_wrong_password_is_told_the_client_and_the_cell() -> None:
    dialogue, _, _ = talked(Server(), "wrong")
    error = message(b"E", b"SFATAL\0VFATAL\0C28P01\0Mpassword authentication failed\0\0")
    turn = dialogue.from_backend(error)
    assert (turn.to_client, turn.suspect, turn.spliced) == (error, True, False)
    full = message(b"E", b"SFATAL\0C53300\0MC28P01\0\0")
    dialogue, _, _ = talked(Server())
    assert not dialogue.from_backend(full).suspect


def test_a_backend_that_speaks_nonsense_is_refused() -> None:
    dialogue, _ = begun()
    with pytest.raises(Refusal) as refusal:
        dialogue.from_backend(b"Ecould not fork new process\n\0")
    assert refusal.value.kind == "unreachable"


def test_roles_of_the_owners_pass_unseen() -> None:
    dialogue, _ = begun(user="reporting")
    assert dialogue.from_backend(authentication(5, b"salt")).to_client == authentication(5, b"salt")
    assert dialogue.from_client(b"pmd5").to_backend == b"pmd5"
    assert dialogue.from_backend(LET_IN).spliced


@pytest.mark.parametrize("name", ["user", "database"])
@pytest.mark.parametrize(
    "forged", ["\n", "x\n2026-11-23T07:09:00Z menagerie: forged", "\r", "\x7f"]
)
def test_a_name_with_control_characters_never_comes_to_the_server(name: str, forged: str) -> None:
    """It writes names into its log as they are, before it knows whose they are."""
    dialogue = PostgresDialogue(Cancels(1))
    # Whichever of two counts: the server takes the last.
    words = {"user": "app", "database": "app"} | {name: f"{forged}\0{name}\0app"}
    with pytest.raises(Refusal) as refusal:
        dialogue.begin(bytearray(startup(**words)))
    assert refusal.value.kind == "malformed"
    assert b"C08P01\0" in dialogue.refusal(refusal.value, problem=False)


def test_names_in_any_language_pass() -> None:
    words = {"user": "größe 表", "database": "Привет"}
    assert isinstance(PostgresDialogue(Cancels(1)).begin(bytearray(startup(**words))), FirstRequest)


def test_of_two_names_the_last_counts() -> None:
    """As for the server."""
    dialogue = PostgresDialogue(Cancels(1))
    body = b"user\0reporting\0user\0app_2\0\0"
    found = dialogue.begin(bytearray(struct.pack("!II", 8 + len(body), 3 << 16) + body))
    assert isinstance(found, FirstRequest)
    proof = ScramVerifier.parse(scram.without_login(Server().verifier))
    dialogue.opened(found.first, "inst_x", {b"app_2": proof})
    refused(lambda: dialogue.from_backend(LET_IN))


@pytest.mark.parametrize(
    "written",
    ["", "4096", "4096:c2FsdA==", "x:c2FsdA==$AAAA", "4096:c2FsdA==$AAAA", "1:$", "$"],
)
def test_what_is_known_of_a_login_is_read_whole_or_not_at_all(written: str) -> None:
    with pytest.raises(ValueError, match="of a login"):
        ScramVerifier.parse(written)


def test_nobody_logs_in_with_what_the_gateway_knows() -> None:
    verifier = scram.verifier(PASSWORD)
    stored_key = verifier.split("$")[2].partition(":")[0]
    assert stored_key not in scram.without_login(verifier)


def refused(act: Callable[[], object]) -> None:
    with pytest.raises(Refusal) as refusal:
        act()
    assert refusal.value.kind == "changed_login"
