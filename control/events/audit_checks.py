"""Checks of a chain of the audit log: its entries in their order, against hashes and heads."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from control.events import audit_records
from storage.events.audit_chain import NOTHING, hash_of

BACKDATED: Final = timedelta(hours=1)
"""By how much an entry may be older than the one before it, which was committed earlier."""


@dataclass(frozen=True)
class KnownHead:
    """A head that was published; `source` says where it was found."""

    seq: int
    hash: str
    time: str
    source: str


@dataclass
class ChainCheck:
    """Entries are given one after the other by their numbers; `findings` says what is wrong.

    `previous` is the hash before the first one, None where it is not known.
    """

    chain: str
    begin: int = 1
    previous: str | None = NOTHING
    heads: Iterable[KnownHead] = ()
    findings: list[str] = field(default_factory=list)
    entries: int = 0
    compared: int = 0
    """Published heads that were compared with an entry."""

    def __post_init__(self) -> None:
        self._next = self.begin
        self._latest: datetime | None = None
        self._heads: defaultdict[int, list[KnownHead]] = defaultdict(list)
        for head in self.heads:
            self._heads[head.seq].append(head)

    def take(self, members: Mapping[str, Any], stored: str | None) -> None:
        seq, entry_id = int(members["seq"]), members["id"]
        self.entries += 1
        if seq < self._next:
            before = "before the beginning of the chain" if seq < self.begin else "twice"
            self.say(f"entry {seq} ({entry_id}) is there {before}: it was inserted")
            return
        if seq > self._next:
            self.say(f"{_range(self._next, seq - 1)} missing: removed, or given another number")
            self.previous = None
        if self.previous is not None and hash_of(self.previous, members) != stored:
            self.say(
                f"entry {seq} ({entry_id}) does not have the hash of its content and of the entry"
                " before it: one of the two was changed, or moved"
            )
        self._compare(seq, stored)
        self._look_at_time(members)
        self.previous, self._next = stored, seq + 1

    def end(self, seq: int, hashed: str) -> None:
        """At the head: the number and the hash of the last entry."""
        last = self._next - 1
        if last < seq:
            self.say(f"{_range(self._next, seq)} missing at the end: removed")
        elif last > seq:
            self.say(
                f"the head is at entry {seq}, and there are entries up to {last}: one of the"
                " two was changed"
            )
        elif self.previous is not None and self.previous != hashed:
            self.say(f"the head has another hash than entry {last}: one of the two was changed")
        self.end_at_last()

    def end_at_last(self) -> None:
        """Where nothing says which is the last one: heads after it were published all the same."""
        for seq in sorted(self._heads):
            if seq >= self._next:
                self.say(
                    f"entry {seq} was published ({self._heads[seq][0].source}), and the entries end"
                    f" at {self._next - 1}: those after it are missing"
                )
                return

    @property
    def next_one(self) -> str:
        return f"entry {self._next}"

    def say(self, finding: str) -> None:
        self.findings.append(f"{self.chain}: {finding}")

    def _compare(self, seq: int, stored: str | None) -> None:
        for head in self._heads.get(seq, ()):
            self.compared += 1
            if head.hash != stored:
                self.say(
                    f"entry {seq} has another hash than the one published at {head.time}"
                    f" ({head.source}): entries up to it were changed and chained anew, or the"
                    " published head was replaced"
                )

    def _look_at_time(self, members: Mapping[str, Any]) -> None:
        time = datetime.fromisoformat(members["time"])
        if self._latest is not None and time < self._latest - BACKDATED:
            self.say(
                f"entry {members['seq']} ({members['id']}) is dated {members['time']}, long before"
                " the entry that it follows: it was inserted with a false time"
            )
        self._latest = max(time, self._latest or time)


def signed(
    heads: Iterable[Mapping[str, Any]], source: str, found: list[str], public_key: str
) -> list[KnownHead]:
    """Those that this key signed, as they are listed; the others are findings."""
    known = []
    for head in heads:
        if head["public_key"] == public_key and audit_records.is_head_signed(
            head, str(head["time"]), public_key
        ):
            known.append(KnownHead(int(head["seq"]), str(head["hash"]), str(head["time"]), source))
        else:
            found.append(
                f"{head['chain']}: the signature of the head at entry {head['seq']} ({source}) is"
                " not right: the head was changed, or signed with another key"
            )
    return known


def _range(first: int, last: int) -> str:
    return f"entry {first} is" if first == last else f"entries {first} to {last} are"
