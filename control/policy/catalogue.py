"""The engines, and which of them can be ordered where: what cells report, nothing kept by hand."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal

Status = Literal["available", "coming_soon"]

_PARTS: Final = re.compile(r"[0-9]+|[^\W\d_]+")
IMAGE: Final = "a container image that the operator provides"


@dataclass(frozen=True)
class Engine:
    """What is true of an engine wherever it runs. `ports` are those of the gateway, main first."""

    id: str
    name: str
    protocol: str
    ports: tuple[int, ...]
    features: tuple[str, ...]
    awaits: str | None = None
    """What an engine without a driver will run from."""

    @property
    def label(self) -> str:
        """The first part of an instance's host name."""
        return self.id


ENGINES: Final[Mapping[str, Engine]] = MappingProxyType(
    {
        engine.id: engine
        for engine in (
            Engine(
                "postgres",
                "PostgreSQL",
                "postgres",
                (5432,),
                ("sql", "extensions", "pitr", "console"),
            ),
            Engine(
                "timescaledb",
                "TimescaleDB",
                "postgres",
                (5432,),
                ("sql", "time_series", "pitr", "console"),
            ),
            Engine("questdb", "QuestDB", "postgres", (5432,), ("sql", "time_series"), IMAGE),
            Engine("mysql", "MySQL", "mysql", (3306,), ("sql", "console")),
            Engine("mariadb", "MariaDB", "mysql", (3306,), ("sql", "pitr", "console")),
            Engine("valkey", "Valkey", "resp", (6379,), ("key_value", "cache", "pitr")),
            Engine("redis", "Redis", "resp", (6379,), ("key_value", "cache", "pitr")),
            Engine("ferretdb", "FerretDB", "mongodb", (27017,), ("documents",), IMAGE),
            Engine("mongodb", "MongoDB", "mongodb", (27017,), ("documents",), IMAGE),
            Engine("meilisearch", "Meilisearch", "https", (443,), ("search",)),
            Engine("duckdb", "DuckDB", "https", (443,), ("sql", "analytics", "console")),
            Engine(
                "clickhouse",
                "ClickHouse",
                "https",
                (8443, 9440),
                ("sql", "analytics"),
                "the clickhouse program on PATH, or the package chdb",
            ),
            Engine(
                "qdrant",
                "Qdrant",
                "https",
                (443,),
                ("vectors", "grpc"),
                "the qdrant program on PATH, or the package qdrant-edge-py",
            ),
            Engine("weaviate", "Weaviate", "https", (443,), ("vectors", "grpc"), IMAGE),
        )
    }
)


@dataclass(frozen=True)
class CellReport:
    """What one cell last said of itself: the versions each engine is found in, newest first.

    `extensions` by engine and version: what owners can create by themselves.
    """

    region: str
    engines: Mapping[str, tuple[str, ...]]
    refused: Mapping[str, str] = field(default_factory=dict)
    """By engine, why the cell cannot run it and what would help."""
    extensions: Mapping[str, Mapping[str, frozenset[str]]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        region: str,
        engines: Iterable[Mapping[str, Any]],
        refused: Iterable[Mapping[str, str]] = (),
    ) -> "CellReport":
        """From its own words: `[{engine, versions, …}, …]` and `[{engine, reason, remedy}, …]`.

        A cell of an earlier release tells no extensions.
        """
        told = tuple(engines)
        return cls(
            region,
            {one["engine"]: tuple(one["versions"]) for one in told},
            {one["engine"]: f"{one['reason']}; {one['remedy']}" for one in refused},
            {one["engine"]: _sets(one.get("extensions", {})) for one in told},
        )


@dataclass(frozen=True)
class Offer:
    """An engine as it can be ordered now. `versions` by region, newest first.

    `extensions` by version: those that every cell with the version has.
    """

    engine: Engine
    versions: Mapping[str, tuple[str, ...]]
    refused: tuple[str, ...] = ()
    """Why cells cannot run it, each reason once."""
    extensions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def status(self) -> Status:
        return "available" if self.versions else "coming_soon"

    @property
    def reason(self) -> str | None:
        """Why the engine cannot be ordered, and what would help; None when it can."""
        if self.versions:
            return None
        if self.refused:
            return ". Another cell: ".join(self.refused)
        name, awaited = self.engine.name, self.engine.awaits
        if awaited is not None:
            return f"this version of Menagerie cannot run {name} yet; it will run from {awaited}"
        return f"no cell has reported yet whether it can run {name}; check that a cell is running"

    @property
    def all_versions(self) -> tuple[str, ...]:
        found = {version for versions in self.versions.values() for version in versions}
        return tuple(sorted(found, key=version_order, reverse=True))


@dataclass(frozen=True)
class Catalogue:
    """What can be ordered: every engine, and every region with the engines found in it."""

    offers: Mapping[str, Offer]
    regions: tuple[str, ...]

    def available(self) -> list[str]:
        return [name for name, offer in self.offers.items() if offer.status == "available"]

    def versions(self, engine: str, region: str) -> tuple[str, ...]:
        offer = self.offers.get(engine)
        return () if offer is None else offer.versions.get(region, ())

    def regions_of(self, engine: str) -> tuple[str, ...]:
        offer = self.offers.get(engine)
        return () if offer is None else tuple(sorted(offer.versions))

    def engines_in(self, region: str) -> list[str]:
        return [name for name, offer in self.offers.items() if region in offer.versions]


def make_catalogue(reports: Iterable[CellReport]) -> Catalogue:
    """The catalogue that the cells' reports add up to. Engines nobody knows are left out."""
    reports = tuple(reports)
    found: dict[str, dict[str, set[str]]] = {name: {} for name in ENGINES}
    refused: dict[str, list[str]] = {name: [] for name in ENGINES}
    for report in reports:
        for name, versions in report.engines.items():
            if name in found and versions:
                found[name].setdefault(report.region, set()).update(versions)
        for name, reason in report.refused.items():
            if name in refused and reason not in refused[name]:
                refused[name].append(reason)
    offers = {
        name: Offer(
            engine,
            {region: _newest_first(some) for region, some in found[name].items()},
            tuple(refused[name]),
            _extensions(name, reports),
        )
        for name, engine in ENGINES.items()
    }
    return Catalogue(offers, tuple(sorted({report.region for report in reports})))


def _sets(by_version: Mapping[str, Iterable[str]]) -> dict[str, frozenset[str]]:
    return {version: frozenset(names) for version, names in by_version.items()}


def _extensions(engine: str, reports: Iterable[CellReport]) -> dict[str, tuple[str, ...]]:
    common: dict[str, frozenset[str]] = {}
    for report in reports:
        has = report.extensions.get(engine, {})
        for version in report.engines.get(engine, ()):
            names = has.get(version, frozenset())
            common[version] = common.get(version, names) & names
    by_version = sorted(common, key=version_order, reverse=True)
    return {each: tuple(sorted(common[each])) for each in by_version if common[each]}


def version_order(version: str) -> tuple[tuple[int, int, str], ...]:
    """Sorts 1.10 after 1.9, and 2.0-rc1 after 1.10 and before 2.0."""
    parts = _PARTS.findall(version)
    ordered = ((2, int(part), "") if part.isdecimal() else (0, 0, part) for part in parts)
    # Numbers that go on are later than the end, and letters are earlier.
    return (*ordered, (1, 0, ""))


def _newest_first(versions: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(versions, key=version_order, reverse=True))
