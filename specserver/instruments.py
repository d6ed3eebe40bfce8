"""Figures of this process, declared where they arise; nobody keeps them until somebody listens.

    SENT: Final = CounterInstrument("menagerie_letters_sent", "Letters by outcome.", ("outcome",))
    SENT.add("refused")

Without a listener that is one look at a variable. Labels must be of few values: no ids, no texts.
"""

from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

Kind = Literal["counter", "gauge", "histogram"]


class InstrumentListener(Protocol):
    """Where figures are kept."""

    def make(self, instrument: "Instrument") -> None: ...
    def add(self, instrument: "Instrument", labels: tuple[str, ...], amount: float) -> None: ...


class _Listening:
    listener: InstrumentListener | None = None


_LISTENING: Final = _Listening()
_DECLARED: Final[dict[str, "Instrument"]] = {}


@dataclass(frozen=True, eq=False)
class Instrument:
    """`name` as Prometheus has it, with the unit last; that of a counter without `_total`."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    kind: Kind = field(default="counter", init=False)

    def __post_init__(self) -> None:
        """Raises ValueError for a second one of that name."""
        if _DECLARED.setdefault(self.name, self) is not self:
            raise ValueError(f"two instruments have the name {self.name}")

    def _tell(self, labels: tuple[str, ...], amount: float) -> None:
        if (listener := _LISTENING.listener) is not None:
            listener.add(self, labels, amount)


class CounterInstrument(Instrument):
    """How often something happened."""

    def add(self, *labels: str, by: float = 1) -> None:
        self._tell(labels, by)


@dataclass(frozen=True, eq=False)
class Level(Instrument):
    """How many of something there are now."""

    kind: Kind = field(default="gauge", init=False)

    def change(self, by: float, *labels: str) -> None:
        self._tell(labels, by)


@dataclass(frozen=True, eq=False)
class Duration(Instrument):
    """How long something took, in seconds, as a histogram."""

    kind: Kind = field(default="histogram", init=False)

    def took(self, seconds: float, *labels: str) -> None:
        self._tell(labels, seconds)


def listen(listener: InstrumentListener | None) -> None:
    """From now on it is told of what is declared and counted; None: nobody is."""
    if listener is not None:
        for each in declared():
            listener.make(each)
    _LISTENING.listener = listener


def declared() -> tuple[Instrument, ...]:
    return tuple(_DECLARED.values())
