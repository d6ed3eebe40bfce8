"""The cell's time: its host's clock, put right by what the control plane proves to be of now."""

import hmac
import secrets
import time
from collections.abc import Callable
from typing import Final

SKEW_MAX_S: Final = 30
CHALLENGE_S: Final = 30.0
_MS: Final = 1000


def steady() -> float:
    """Seconds that nobody sets, and that go on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Clock:
    """Judges when requests were signed. Decision 0017 says why no replay can move it.

    `heard_at` is the latest moment the control plane signed for that was believed. Nothing signed
    longer before it than the skew is believed again, so what is remembered of it may go.
    """

    def __init__(
        self,
        heard_at: int = 0,
        *,
        host: Callable[[], float] = time.time,
        steady: Callable[[], float] = steady,
    ) -> None:
        self.host = host
        self.offset_s = 0.0
        self.heard_at = heard_at
        self.floor = heard_at - SKEW_MAX_S
        self._steady = steady
        # Where the control plane stood, at least, when nothing had passed by the steady clock.
        self._ahead_s = heard_at - steady()
        self._key = secrets.token_bytes(32)
        self._answered = -1

    def now(self) -> float:
        """Unix seconds as the control plane counts them; never before what it has signed for."""
        return max(self.host() + self.offset_s, self.heard_at)

    def at_least(self) -> float:
        """Unix seconds that have passed for the control plane too, whatever the host's clock says.

        A request tells of whole seconds, so this is about one behind.
        """
        return max(self._steady() + self._ahead_s, self.heard_at)

    def is_fresh(self, signed_at: int) -> bool:
        skew_s = abs(self.host() + self.offset_s - signed_at)
        return signed_at >= self.floor and skew_s <= SKEW_MAX_S

    def hear(self, signed_at: int) -> None:
        """Of a request that was fresh, and is believed."""
        if signed_at >= self.heard_at:
            self._ahead_s = signed_at - self._steady()
        self.heard_at = max(self.heard_at, signed_at)
        self.floor = max(self.floor, signed_at - SKEW_MAX_S)

    def challenge(self) -> str:
        """What only a signature made from now on can cover."""
        return self._challenge(int(self._steady() * _MS))

    def answered(self, challenge: str) -> bool:
        """Whether it is ours, of the last seconds, and given after any that was answered."""
        given = challenge.partition("-")[0]
        if not given.isdecimal() or not hmac.compare_digest(
            self._challenge(int(given)).encode(), challenge.encode()
        ):
            return False
        age_s = self._steady() - int(given) / _MS
        return int(given) > self._answered and age_s <= CHALLENGE_S

    def learn(self, signed_at: int, challenge: str) -> None:
        """Take over the time of a signature that covers the challenge, backwards too.

        Nothing signed before it is believed any more.
        """
        self._answered = int(challenge.partition("-")[0])
        self.offset_s = signed_at - self.host()
        self.heard_at = self.floor = signed_at
        self._ahead_s = signed_at - self._steady()

    def _challenge(self, given_ms: int) -> str:
        proof = hmac.digest(self._key, str(given_ms).encode(), "sha256").hex()
        return f"{given_ms}-{proof}"
