"""The catalogue is what cells report."""

from control.policy.catalogue import ENGINES, CellReport, make_catalogue, version_order

ALL_ENGINES = [
    "postgres", "timescaledb", "questdb", "mysql", "mariadb", "valkey", "redis", "ferretdb",
    "mongodb", "meilisearch", "duckdb", "clickhouse", "qdrant", "weaviate",
]  # fmt: skip


def test_all_fourteen_engines_are_known() -> None:
    assert list(ENGINES) == ALL_ENGINES


def test_without_cells_everything_is_coming_soon_and_says_why() -> None:
    catalogue = make_catalogue([])
    assert {offer.status for offer in catalogue.offers.values()} == {"coming_soon"}
    reasons = {name: offer.reason or "" for name, offer in catalogue.offers.items()}
    assert all(ENGINES[name].name in reason for name, reason in reasons.items())
    assert "qdrant program on PATH" in reasons["qdrant"]
    assert "container image" in reasons["weaviate"]


def test_an_engine_that_no_cell_can_run_says_what_would_help_each_remedy_once() -> None:
    refused = {"engine": "redis", "reason": "no redis-server", "remedy": "install redis-server"}
    other = {**refused, "reason": "too old"}
    reports = [CellReport.of("eu", [], [each]) for each in (refused, refused, other)]
    reason = make_catalogue(reports).offers["redis"].reason
    told = "no redis-server; install redis-server. Another cell: too old; install redis-server"
    assert reason == told
    found = CellReport.of("us", [{"engine": "redis", "versions": ["7.0"]}])
    assert make_catalogue([*reports, found]).offers["redis"].reason is None


def test_an_engine_is_available_where_a_cell_found_it_newest_version_first() -> None:
    catalogue = make_catalogue(
        [
            CellReport("eu", {"postgres": ("9.6", "18", "16"), "duckdb": ("1.5",)}),
            CellReport("eu", {"postgres": ("17",), "qdrant": ()}),
            CellReport.of("us", [{"engine": "duckdb", "versions": ["1.10", "1.9"], "source": "x"}]),
        ]
    )
    assert catalogue.regions == ("eu", "us")
    assert catalogue.available() == ["postgres", "duckdb"]
    assert catalogue.versions("postgres", "eu") == ("18", "17", "16", "9.6")
    assert catalogue.versions("postgres", "us") == ()
    assert catalogue.offers["duckdb"].all_versions == ("1.10", "1.9", "1.5")
    assert catalogue.offers["duckdb"].reason is None
    assert catalogue.engines_in("us") == ["duckdb"]


def test_an_engine_nobody_knows_is_not_offered() -> None:
    assert "oracle" not in make_catalogue([CellReport("eu", {"oracle": ("23",)})]).offers


def test_extensions_are_those_that_every_cell_with_the_version_has() -> None:
    def told(**by_version: list[str]) -> CellReport:
        extensions = {name.removeprefix("v"): some for name, some in by_version.items()}
        engine = {"engine": "postgres", "versions": list(extensions), "extensions": extensions}
        return CellReport.of("eu", [engine])

    catalogue = make_catalogue(
        [told(v18=["vector", "hstore"], v17=["hstore"]), told(v18=["hstore"])]
    )
    assert catalogue.offers["postgres"].extensions == {"18": ("hstore",), "17": ("hstore",)}
    catalogue = make_catalogue([told(v18=["hstore"]), told(v18=["vector", "hstore"])])
    assert catalogue.offers["postgres"].extensions == {"18": ("hstore",)}
    # A cell of an earlier release tells nothing, so nothing is allocated.
    silent = CellReport.of("us", [{"engine": "postgres", "versions": ["18"], "source": "x"}])
    catalogue = make_catalogue([told(v18=["vector"]), silent])
    assert catalogue.offers["postgres"].extensions == {}


def test_extensions_are_told_by_version_newest_first() -> None:
    extensions = {version: ["hstore", "vector"] for version in ("9.6", "18", "17")}
    engine = {"engine": "postgres", "versions": list(extensions), "extensions": extensions}
    catalogue = make_catalogue([CellReport.of("eu", [engine]), CellReport.of("us", [engine])])
    told = catalogue.offers["postgres"].extensions
    assert list(told.items()) == [
        (version, ("hstore", "vector")) for version in ("18", "17", "9.6")
    ]


def test_versions_are_ordered_by_their_numbers_and_early_ones_come_before() -> None:
    ordered = ["9.6", "17", "18beta1", "18beta2", "18-rc.1", "18", "18.1", "18.9", "18.10"]
    assert sorted(set(ordered), key=version_order) == ordered
