"""A cell whose host's clock is off: it learns the time, and from nothing that was said before."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from cell.access.clock import Clock
from cell.access.signatures import Signatures, last_heard
from cell.access.tokens import Tokens
from cell.agent import Cell
from cell.database import Database
from cell.settings import CellSettings
from contract_tests.cell.rig import CELL_ID, Rig, until
from control.cells.client import CellUnavailable, HttpCell
from control.cells.signing import Signer
from specserver import Gone, Request, Unauthenticated

NOW = 1_800_000_000
HOUR_S = 3600.0


class ClockedCell:
    """A cell's judges over a real database, and both clocks in hand."""

    def __init__(self, path: Path) -> None:
        self.at = float(NOW)
        self.host_off_s = 0.0
        self._key = Ed25519PrivateKey.generate()
        self.signer = Signer(self._key, clock=lambda: self.at)
        self.database = Database(path)
        self.restart()

    def restart(self) -> None:
        self.clock = Clock(
            last_heard(self.database),
            host=lambda: self.at + self.host_off_s,
            steady=lambda: self.at - NOW,
        )
        settings = CellSettings(Path("/nowhere"), CELL_ID, self.signer.public_key)
        self.signatures = Signatures(self.database, settings, self.clock)
        self.tokens = Tokens(self.database, settings, self.clock)

    def ask(self, headers: dict[str, str]) -> None:
        self.signatures.verify(request(headers))

    def sign(self, challenge: str = "") -> dict[str, str]:
        return self.signer.sign_request(CELL_ID, "GET", "/v1/cell", challenge=challenge)

    def challenged(self) -> str:
        with pytest.raises(Unauthenticated) as refused:
            self.ask(self.sign())
        assert refused.value.code == "stale_signature"
        return str(refused.value.headers["Menagerie-Challenge"])

    def refuses(self, headers: dict[str, str]) -> str:
        with pytest.raises(Unauthenticated) as refused:
            self.ask(headers)
        return str(refused.value.code)

    def token(self, ttl_s: float = 60) -> str:
        claims = {"instance_id": "inst_1", "action": "reveal", "jti": "j", "exp": self.at + ttl_s}
        return self.signer.token(CELL_ID, claims)


def request(headers: dict[str, str]) -> Request:
    scope = {"type": "http", "method": "GET", "path": "/v1/cell", "raw_path": b"/v1/cell"}
    given = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    return Request(scope | {"headers": given, "query_string": b""})


@pytest.fixture
def clocked(tmp_path: Path) -> Iterator[ClockedCell]:
    made = ClockedCell(tmp_path / "cell.db")
    yield made
    made.database.close()


def test_what_has_passed_for_the_control_plane_is_never_ahead_of_it(clocked: ClockedCell) -> None:
    """By no clock of the host's: a rotation ends what was signed before, and nothing else."""
    clocked.at += 2 * HOUR_S
    for clocked.host_off_s in (0.0, 20.0, -20.0):
        clocked.ask(clocked.sign())
        clocked.at += 7.5
        assert clocked.at - 1.5 <= clocked.clock.at_least() <= clocked.at
    late = clocked.sign()
    clocked.at += 7.5
    clocked.ask(late)
    assert clocked.clock.at_least() <= clocked.at
    # Set back by the control plane: what was noted before is of the future.
    noted = clocked.clock.at_least()
    clocked.restart()
    assert clocked.clock.at_least() <= clocked.at
    clocked.at -= HOUR_S
    clocked.host_off_s = HOUR_S
    clocked.ask(clocked.sign(clocked.challenged()))
    assert clocked.clock.at_least() < noted


def test_a_rotation_of_the_future_ends_nothing(clocked: ClockedCell) -> None:
    def urls() -> tuple[str, str]:
        named = {
            "instance_id": "inst_1",
            "action": "reveal",
            "exp": clocked.at + 60,
            "iat": clocked.at,
        }
        first, second = (clocked.signer.token(CELL_ID, {**named, "jti": jti}) for jti in "ab")
        return first, second

    before, rotates = urls()
    clocked.tokens.outdate(clocked.tokens.check(rotates, "reveal"))
    with pytest.raises(Gone, match="rotated after"):
        clocked.tokens.check(before, "reveal")
    clocked.at -= HOUR_S
    clocked.tokens.check(urls()[0], "reveal")


@pytest.mark.parametrize("off_s", [-HOUR_S, -60, 60, HOUR_S])
def test_the_time_is_learned_from_an_answered_challenge(clocked: ClockedCell, off_s: float) -> None:
    clocked.host_off_s = off_s
    clocked.ask(clocked.sign(clocked.challenged()))
    assert clocked.clock.now() == clocked.at
    clocked.ask(clocked.sign())
    assert clocked.tokens.check(clocked.token(), "reveal").jti == "j"
    late = clocked.token()
    clocked.at += 61
    with pytest.raises(Gone):
        clocked.tokens.check(late, "reveal")


def test_a_request_of_before_moves_no_clock(clocked: ClockedCell) -> None:
    """Captured and kept back an hour ago, with the cell's own challenge of now sent beside it."""
    captured = clocked.sign()
    clocked.at += HOUR_S
    clocked.ask(clocked.sign())
    assert clocked.refuses(captured) == "stale_signature"
    challenge = clocked.clock.challenge()
    assert clocked.refuses(captured | {"Menagerie-Challenge": challenge}) == "bad_signature"
    assert clocked.clock.now() == clocked.at


def test_an_answer_is_believed_once(clocked: ClockedCell) -> None:
    clocked.host_off_s = HOUR_S
    answer = clocked.sign(clocked.challenged())
    clocked.ask(answer)
    assert clocked.refuses(answer) == "replayed"
    clocked.at += 5
    clocked.host_off_s = -HOUR_S
    clocked.ask(clocked.sign(clocked.challenged()))
    clocked.signatures.forget_old()
    assert clocked.refuses(answer) == "stale_signature"


def test_a_challenge_is_the_cells_own_and_of_the_last_seconds(clocked: ClockedCell) -> None:
    clocked.host_off_s = HOUR_S
    challenge = clocked.challenged()
    made_up = f"{challenge.partition('-')[0]}-{'0' * 64}"
    for other in (made_up, "no", challenge[:-1]):
        assert clocked.refuses(clocked.sign(other)) == "stale_signature"
    clocked.at += 31
    assert clocked.refuses(clocked.sign(challenge)) == "stale_signature"
    challenge = clocked.challenged()
    clocked.restart()
    assert clocked.refuses(clocked.sign(challenge)) == "stale_signature"


@pytest.mark.parametrize("ahead_s", [120.0, 3 * HOUR_S, 48 * HOUR_S])
def test_a_clock_that_was_ahead_for_a_while_lets_nothing_be_said_twice(
    clocked: ClockedCell, ahead_s: float
) -> None:
    """Housekeeping by that clock must not forget what is still of now by the right one."""
    said, token = clocked.sign(), clocked.token(600)
    clocked.ask(said)
    clocked.tokens.burn(clocked.tokens.check(token, "reveal"))
    clocked.host_off_s = ahead_s
    clocked.signatures.forget_old()
    clocked.tokens.forget_expired()
    clocked.host_off_s = 0.0
    assert clocked.refuses(said) == "replayed"
    with pytest.raises(Gone):
        clocked.tokens.burn(clocked.tokens.check(token, "reveal"))
    clocked.at += 1
    clocked.host_off_s = ahead_s
    clocked.ask(clocked.sign(clocked.challenged()))
    clocked.signatures.forget_old()
    assert clocked.refuses(said) == "stale_signature"


def test_a_clock_that_is_set_back_revives_no_url(clocked: ClockedCell) -> None:
    token = clocked.token(60)
    clocked.at += 61
    clocked.ask(clocked.sign())
    clocked.host_off_s = -HOUR_S
    with pytest.raises(Gone):
        clocked.tokens.check(token, "reveal")


def test_a_restart_believes_nothing_of_before(clocked: ClockedCell) -> None:
    kept_back = clocked.sign()
    clocked.at += 40
    said = clocked.sign()
    clocked.ask(said)
    clocked.host_off_s = -40
    clocked.restart()
    assert clocked.refuses(kept_back) == "stale_signature"
    assert clocked.refuses(said) in {"stale_signature", "replayed"}


def test_a_cell_begins_with_what_the_one_before_it_heard(
    clocked: ClockedCell, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    settings = CellSettings(
        *(home, CELL_ID, clocked.signer.public_key),
        engines=(),
        clock=lambda: clocked.at + clocked.host_off_s,
    )
    kept_back = clocked.sign()
    clocked.at += 60
    with cell(settings) as first:
        first.signatures.verify(request(clocked.sign()))
    # The machine's clock was set back to when that was signed.
    clocked.host_off_s = -60.0
    with cell(settings) as second, pytest.raises(Unauthenticated) as refused:
        second.signatures.verify(request(kept_back))
    assert refused.value.code == "stale_signature"


@contextmanager
def cell(settings: CellSettings) -> Iterator[Cell]:
    """One that starts no engine."""
    made = Cell(settings)
    try:
        yield made
    finally:
        asyncio.run(made.close())


def test_what_was_forgotten_is_refused_by_its_date(clocked: ClockedCell) -> None:
    said = clocked.sign()
    clocked.ask(said)
    clocked.at += 31
    clocked.ask(clocked.sign())
    clocked.signatures.forget_old()
    assert clocked.database.rows("SELECT count(*) FROM heard") == [(1,)]
    clocked.host_off_s = -31
    assert clocked.refuses(said) == "stale_signature"


def test_nonces_of_a_former_version_are_kept(clocked: ClockedCell, tmp_path: Path) -> None:
    clocked.database.write("CREATE TABLE nonces (nonce TEXT PRIMARY KEY, until REAL NOT NULL)")
    said = clocked.sign()
    clocked.database.write(
        "INSERT INTO nonces VALUES (?, ?)", said["Menagerie-Nonce"], clocked.at + 600.5
    )
    clocked.database.close()
    clocked.database = Database(tmp_path / "cell.db")
    clocked.restart()
    assert clocked.refuses(said) == "replayed"
    clocked.ask(clocked.sign())


def test_a_challenge_answered_for_another_cell_sets_no_clock(clocked: ClockedCell) -> None:
    """Were one that was taken over to hand on ours, and what is signed for it over that."""
    clocked.host_off_s = HOUR_S
    challenge = clocked.challenged()
    passed_on = clocked.signer.sign_request("cell_other", "GET", "/v1/cell", challenge=challenge)
    assert clocked.refuses(passed_on) == "wrong_cell"
    assert clocked.clock.offset_s == 0.0
    # Whatever else it says of the cell: that is not what was signed.
    assert clocked.refuses({**passed_on, "Menagerie-Cell": CELL_ID}) == "bad_signature"
    clocked.ask(clocked.sign(challenge))


@pytest.mark.parametrize("off_s", [-HOUR_S, HOUR_S])
def test_a_cell_on_a_machine_whose_clock_is_off_serves(tmp_path: Path, off_s: float) -> None:
    rig = Rig(tmp_path / "cell", clock_off_s=off_s)
    control = HttpCell(
        CELL_ID,
        f"http+unix://{quote(str(rig.home / 'run' / 'cell.sock'))}",
        Signer(rig.key, clock=time.time),
    )

    def described() -> Any:
        try:
            return control.describe()
        except CellUnavailable:  # it does not listen yet; one that refuses does so for ever
            return None

    try:
        rig.launch()
        told = until(described, "the cell answers")["clock"]
        assert abs(told["offset_s"] + off_s) < 30
        path = f"/v1/reveal/{rig.token('inst_01JD0000000000000000000000', 'reveal')}"
        with rig.client() as http:
            assert http.get(path).status_code == 404  # and not 410: it has not expired
            expired = rig.token("inst_01JD0000000000000000000000", "reveal", ttl_s=-60)
            assert http.get(f"/v1/reveal/{expired}").status_code == 410
    finally:
        control.close()
        rig.destroy()


def test_the_hosts_clock_is_what_a_cell_begins_with() -> None:
    settings = CellSettings(Path("/nowhere"), "cell_1", b"k" * 32)
    assert abs(settings.clock() - Clock().host()) < HOUR_S
