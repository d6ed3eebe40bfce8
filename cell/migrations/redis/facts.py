"""What a source says of itself (INFO), and what of that would go wrong or differ."""

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from cell.engines.resp import keyspace
from cell.engines.resp.configuration import RespLimits
from cell.engines.resp.keyspace import KeyCounts
from cell.migrations.redis.stream import DATABASES
from cell.migrations.report import PreflightFinding, bounded
from cell.specification import Size, Spec

INFO_BYTES_MAX: Final = 256 * 1024
NEARLY_FULL: Final = 0.8
CLOCKS_S: Final = 2.0
BACKLOG_BYTES: Final = 16 * 2**20
# Older ones have replicas run scripts, unless they are told otherwise.
SCRIPTS_SINCE: Final = 5
NAMES_MAX: Final = 20
_SERIES: Final = re.compile(r"(\d{1,3})\.(\d{1,3})", re.ASCII)
_MODULE: Final = re.compile(r"name=([\w.-]{1,40})")


@dataclass(frozen=True)
class RedisFacts:
    """`offset` is how much of its history there was when it said so."""

    said: Mapping[str, str]
    modules: tuple[str, ...] = ()
    at: float = 0.0

    @classmethod
    def parse(cls, told: bytes) -> "RedisFacts":
        lines = told[:INFO_BYTES_MAX].decode(errors="replace").splitlines()
        pairs = [line.split(":", 1) for line in lines if ":" in line and line[0] != "#"]
        modules = [_MODULE.search(value) for name, value in pairs if name == "module"]
        named = tuple(sorted({each[1] for each in modules if each}))[:NAMES_MAX]
        return cls(dict(pairs), named, time.time())

    def number(self, name: str) -> int | None:
        told = self.said.get(name, "")
        return int(told) if told.isdigit() and len(told) <= 18 else None  # noqa: PLR2004

    @property
    def offset(self) -> int | None:
        return self.number("master_repl_offset")

    @property
    def counts(self) -> dict[int, KeyCounts]:
        """By database, of those that have any."""
        return keyspace.counts(self.said)

    @property
    def version(self) -> str:
        of_valkey = self.said.get("valkey_version")
        name, told = (
            ("Valkey", of_valkey) if of_valkey else ("Redis", self.said.get("redis_version"))
        )
        return bounded(f"{name} {told or 'of an unknown version'}")[:60]

    def is_newer(self, engine: str, version: str) -> bool:
        """Than a server of the same kind; those of the other count otherwise."""
        kind = "valkey" if "valkey_version" in self.said else "redis"
        told = _SERIES.match(self.said.get(f"{kind}_version", ""))
        other = _SERIES.match(version)
        if kind != engine or told is None or other is None:
            return False
        return tuple(map(int, told.groups())) > tuple(map(int, other.groups()))

    @property
    def major(self) -> int | None:
        told = self.said.get("redis_version", "").partition(".")[0]
        return int(told) if told.isdigit() and len(told) < 4 else None  # noqa: PLR2004


def findings(facts: RedisFacts, spec: Spec, *, syncs: bool) -> Iterator[PreflightFinding]:
    """Of an instance that is to be as the `spec` says."""
    size = spec.size
    yield PreflightFinding("info", "version", f"the source is {facts.version}")
    if facts.is_newer(spec.engine, spec.engine_version):
        told = f"the source is newer than the instance, {spec.engine} {spec.engine_version}"
        remedy = "commands and kinds of values that are new there end the migration: upgrade before"
        yield PreflightFinding("warning", "newer", told, remedy)
    yield from _state(facts)
    yield from _room(facts, size)
    yield from _content(facts)
    if syncs:
        yield from _following(facts)


def _state(facts: RedisFacts) -> Iterator[PreflightFinding]:
    said = facts.said
    if said.get("loading") == "1":
        told = "the source is loading its data; try again when it has"
        yield PreflightFinding("blocking", "loading", told)
    if said.get("role") == "slave":
        if said.get("master_link_status") != "up":
            told = "the source is a replica that is not connected to its master"
            remedy = "have it connect, or migrate from the master"
            yield PreflightFinding("blocking", "replica", told, remedy)
        else:
            told = "the source is a replica: what reaches its master late comes here later still"
            yield PreflightFinding("info", "replica", told)
    if said.get("cluster_enabled") == "1":
        told = (
            "the source is a node of a cluster: only the keys of its own slots are copied, and "
            "those of slots that it gets later follow"
        )
        remedy = "migrate from here only if it has all slots"
        yield PreflightFinding("warning", "cluster", told, remedy)


def _room(facts: RedisFacts, size: Size) -> Iterator[PreflightFinding]:
    room = RespLimits.of(size).memory_bytes
    held = facts.number("used_memory_dataset")
    used = facts.number("used_memory")
    remedy = "choose a larger size (resize)"
    if held is not None and held > room:
        told = f"the data of the source takes {held} bytes of memory; the size has room for {room}"
        yield PreflightFinding("blocking", "memory", told, remedy)
    elif used is not None and used > NEARLY_FULL * room:
        told = f"the source uses {used} bytes of memory, and the size has room for {room} of data"
        yield PreflightFinding("warning", "memory", told, remedy)
    policy = facts.said.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        told = (
            f"the source removes keys where its memory is full ({bounded(policy)[:40]}); an "
            "instance refuses writes then, and removes none"
        )
        yield PreflightFinding(
            "warning", "evicts", told, "let keys expire, or remove them yourself"
        )


def _content(facts: RedisFacts) -> Iterator[PreflightFinding]:
    beyond = [number for number in facts.counts if number >= DATABASES]
    if beyond:
        told = f"the source has data in database {max(beyond)}; an instance has {DATABASES}, from 0"
        yield PreflightFinding("blocking", "databases", told, "move it to one of the first (MOVE)")
    if facts.modules:
        told = f"the source has modules ({', '.join(facts.modules)}), which an instance does not"
        remedy = "what is stored by them must be removed before"
        yield PreflightFinding("warning", "modules", bounded(told), remedy)
    expiring = sum(each.expiring for each in facts.counts.values())
    if expiring:
        told = f"{expiring} keys expire, and do so in the instance at the same moments"
        yield PreflightFinding("info", "expiring", told)
        now_us = facts.number("server_time_usec")
        if now_us is not None and abs(now_us / 1e6 - facts.at) > CLOCKS_S:
            ahead_s = now_us / 1e6 - facts.at
            told = f"the clock of the source differs by {ahead_s:.0f} s, by which keys expire"
            yield PreflightFinding("warning", "clock", told, "have clocks set by NTP")


def _following(facts: RedisFacts) -> Iterator[PreflightFinding]:
    if facts.offset is None:
        told = "the source does not say how far its history goes (INFO replication)"
        yield PreflightFinding("blocking", "no_offset", told)
    if facts.major is not None and facts.major < SCRIPTS_SINCE:
        told = "scripts of the source cannot be followed: it has its replicas run them"
        remedy = "do not run scripts that write while it syncs, or upgrade the source to 5 or newer"
        yield PreflightFinding("warning", "scripts", told, remedy)
    backlog = facts.number("repl_backlog_size")
    if backlog is not None and backlog < BACKLOG_BYTES:
        told = (
            f"the source keeps {backlog} bytes of changes for a connection that breaks off; with "
            "more, all data is copied anew"
        )
        yield PreflightFinding("info", "backlog", told, "raise repl-backlog-size there")
