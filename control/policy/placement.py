"""What fits where: machines, what of them is allocated to instances, and what may still be."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any, Final

from control.policy.sizes import GB, SIZES, Size
from control.policy.violations import Violation


@dataclass(frozen=True)
class Amount:
    """So much of a machine."""

    vcpu: float = 0
    memory_bytes: int = 0
    storage_bytes: int = 0

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(
            self.vcpu + other.vcpu,
            self.memory_bytes + other.memory_bytes,
            self.storage_bytes + other.storage_bytes,
        )

    def beyond(self, other: "Amount") -> "Amount":
        """What is more than there, whole; 0 for the rest."""
        pairs = zip(astuple(self), astuple(other), strict=True)
        return Amount(*(mine if mine > theirs else 0 for mine, theirs in pairs))

    def lacks(self, needed: "Amount") -> list[str]:
        """What of it there is too little of, in words."""
        pairs = zip(_WORDS, astuple(self), astuple(needed), strict=True)
        # Shares of CPUs are not exact in binary.
        return [word for word, there, wanted in pairs if wanted > there + _ROUNDING]


_WORDS: Final = ("CPU", "memory", "disk")
_ROUNDING: Final = 1e-9


@dataclass(frozen=True)
class Overcommit:
    """How many times over each may be allocated. Below 1, some is kept for other things."""

    cpu: float = 8.0
    memory: float = 1.0
    storage: float = 2.0

    def of(self, machine: Amount) -> Amount:
        return Amount(
            machine.vcpu * self.cpu,
            int(machine.memory_bytes * self.memory),
            int(machine.storage_bytes * self.storage),
        )


@dataclass(frozen=True)
class Candidate:
    """A cell's machine (None: not told yet, nothing is refused) and what of it is allocated."""

    cell_id: str
    machine: Amount | None
    allocated: Amount
    overcommit: Overcommit = Overcommit()
    instances: int = 0
    """That are wanted there, whoever they belong to."""

    @classmethod
    def of(
        cls,
        cell_id: str,
        told: Mapping[str, Any] | None,
        allocated: Amount,
        over: Overcommit,
        instances: int,
    ) -> "Candidate":
        """From the cell's own words."""
        return cls(cell_id, None if told is None else Amount(**told), allocated, over, instances)

    def lacks_ever(self, needed: Amount) -> list[str]:
        """What the machine has too little of, were it empty.

        No instance gets more CPUs or memory than there are; storage is what it may grow to.
        """
        if self.machine is None:
            return []
        allowed = self.overcommit.of(self.machine)
        vcpu = min(allowed.vcpu, self.machine.vcpu)
        memory_bytes = min(allowed.memory_bytes, self.machine.memory_bytes)
        return Amount(vcpu, memory_bytes, allowed.storage_bytes).lacks(needed)

    def lacks_now(self, needed: Amount) -> list[str]:
        """What there is too little of beside what is allocated already."""
        if self.machine is None:
            return []
        whole = Amount(
            *(
                wanted and wanted + held
                for wanted, held in zip(astuple(needed), astuple(self.allocated), strict=True)
            )
        )
        found = {*self.overcommit.of(self.machine).lacks(whole), *self.lacks_ever(needed)}
        return [word for word in _WORDS if word in found]


def amount(size: Size, storage_bytes: int) -> Amount:
    """What an instance that runs is allocated."""
    return Amount(size.vcpu, size.memory_bytes, storage_bytes)


def with_room(needed: Amount, candidates: Iterable[Candidate]) -> list[Candidate]:
    return [candidate for candidate in candidates if not candidate.lacks_now(needed)]


def largest_size(
    candidates: Sequence[Candidate], sizes: Iterable[str] = SIZES, storage_bytes: int | None = None
) -> str | None:
    """The largest size that fits somewhere now, with so much storage (None: what it includes)."""
    fitting = None
    for size in (SIZES[name] for name in sizes):
        storage = size.storage_bytes_included if storage_bytes is None else storage_bytes
        if storage <= size.storage_bytes_max and with_room(amount(size, storage), candidates):
            fitting = size.name
    return fitting


def check_room(
    size: str,
    needed: Amount,
    candidates: Sequence[Candidate],
    *,
    offered: Iterable[str] = SIZES,
    storage_asked: bool = False,
) -> list[Violation]:
    """What is wrong with asking for so much on any of these cells: nothing, or one thing.

    `offered` are the sizes that may be named instead; `storage_asked`: it was not the size's own.
    """
    if with_room(needed, candidates):
        return []
    storage_bytes = needed.storage_bytes if storage_asked else None
    fitting = largest_size(candidates, offered, storage_bytes)
    less = replace(needed, storage_bytes=SIZES[size].storage_step_bytes)
    is_storage = storage_asked and bool(with_room(less, candidates))
    storage = f" with {_gigabytes(needed.storage_bytes)} of storage" if needed.storage_bytes else ""
    return [
        Violation(
            pointer="/storage_bytes" if is_storage else "/size",
            keyword="capacity",
            message=refusal(f"size {size}{storage}", needed, candidates, fitting),
        )
    ]


def refusal(what: str, needed: Amount, candidates: Sequence[Candidate], fitting: str | None) -> str:
    """Why there is no room for `what` on any of these cells, and what there is room for."""
    ever = [candidate for candidate in candidates if not candidate.lacks_ever(needed)]
    if ever:
        lacking = min((candidate.lacks_now(needed) for candidate in ever), key=len)
        reason = f"there is not enough {_listed(lacking)} left for {what}"
        remedy = "Pause instances to free CPU and memory, or erase them to free disk as well"
    else:
        lacking = min((candidate.lacks_ever(needed) for candidate in candidates), key=len)
        reason = f"{what} needs more {_listed(lacking)} than any machine here has"
        remedy = "For a larger size, add a larger machine"
    now = f"the largest size that fits now is {fitting}" if fitting else "no size fits now"
    return f"{reason}; {now}. {remedy}"


def _gigabytes(size_bytes: int) -> str:
    return f"{size_bytes / GB:g} GB"


def _listed(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
