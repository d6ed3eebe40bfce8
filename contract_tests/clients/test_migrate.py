"""`menagerie migrate`: the source goes to the cell in parts, and never to the control plane."""

import io
import json
import os
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest

from clients import migrating
from clients.cli import migration_steps
from contract_tests.by_day import one_in
from contract_tests.clients.conftest import Cli
from contract_tests.clients.servers import DROP, Scripted, Seen, problem
from contract_tests.clients.stand_in import INSTANCE, ROUTES, ControlPlane

URI = "postgresql://reader:sEcReT@db.example.com/shop"
PART = 1000


class Migrating:
    """The migrations of the stand-in, and what has arrived at its cell."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.wanted: Any = None
        self.status = ["awaiting_source"]
        self.reason: str | None = None
        self.received = b""
        self.total: int | None = None
        self.received_at: str | None = None
        self.connection: Any = None
        self.unheard = 0
        self.urls = 0
        self.live = ""

    def url(self) -> str:
        self.urls += 1
        self.live = f"/v1/migration-source/token{self.urls}"
        return f"https://cell.local.localhost:{self.plane.cell.port}{self.live}"

    def shown(self) -> dict[str, Any]:
        status = self.status[0] if len(self.status) == 1 else self.status.pop(0)
        progress = {
            **dict.fromkeys(("rows_done", "tables_done", "tables_total", "lag_bytes", "lag_s")),
            "bytes_done": 5,
            "bytes_total": 10,
            "estimated_s": 3.2,
            "updated_at": None,
        }
        return {
            "id": "mig_01JD7QK3V8Y2M4N6P8R0S2T4V6",
            "status": status,
            "status_reason": self.reason,
            "progress": progress if status == "copying" else None,
            "source_received_at": self.received_at,
        }

    # The control plane.

    def create(self, _plane: ControlPlane, seen: Seen, **_: str) -> Scripted:
        self.wanted = seen.body
        return 201, {}, {**self.shown(), "source_url": self.url()}

    def get(self, _plane: ControlPlane, _seen: Seen, **_: str) -> Scripted:
        return 200, {}, self.shown()

    def source_url(self, _plane: ControlPlane, _seen: Seen, **_: str) -> Scripted:
        if self.received_at is not None:
            return problem(409, "Conflict", "cannot send the source", code="conflict")
        return 200, {}, {"url": self.url(), "method": "PUT", "expires_at": "2030-01-01T00:00:00Z"}

    def cancel(self, _plane: ControlPlane, _seen: Seen, **_: str) -> Scripted:
        self.status = ["cancelled"]
        return 202, {}, self.shown()

    # The cell.

    def at_cell(self, seen: Seen) -> Scripted:
        if seen.path != self.live or self.received_at is not None:
            return problem(410, "Gone", "this URL has expired", code="expired")
        if self.unheard:
            self.unheard -= 1
            return problem(404, "Not Found", "no such migration")
        if seen.method == "PUT":
            refused = self._take(seen)
            if refused is not None:
                return refused
        return 200, {}, self._told()

    def _told(self) -> dict[str, Any]:
        return {
            "received_bytes": len(self.received),
            "total_bytes": self.total,
            "received_at": self.received_at,
            "part_bytes_max": PART,
        }

    def _take(self, seen: Seen) -> Scripted | None:
        if isinstance(seen.body, dict):
            self.connection, self.received_at = seen.body, "now"
            return None
        ranged = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+)", seen.headers.get("Content-Range", ""))
        first, last, total = map(int, ranged.groups()) if ranged else (0, len(seen.body) - 1, None)
        assert last - first + 1 == len(seen.body) <= PART
        if first not in (0, len(self.received)):
            return problem(409, "Conflict", "not where the last part ended", code="wrong_offset")
        self.received = self.received[:first] + seen.body
        self.total = total or len(seen.body)
        if len(self.received) == self.total:
            self.received_at = "now"
        return None


@pytest.fixture
def stand_in(home: Path, plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> Migrating:
    assert home
    made, one = Migrating(plane), INSTANCE + r"/migrations/mig_\w+"
    monkeypatch.setitem(ROUTES, ("POST", INSTANCE + "/migrations"), made.create)
    monkeypatch.setitem(ROUTES, ("GET", one), made.get)
    monkeypatch.setitem(ROUTES, ("POST", one + "/actions/source-url"), made.source_url)
    monkeypatch.setitem(ROUTES, ("POST", one + "/actions/cancel"), made.cancel)
    routes = plane.cell.routes

    def at_cell(seen: Seen) -> Scripted:
        return made.at_cell(seen) if "/migration-source/" in seen.path else routes(seen)

    monkeypatch.setattr(plane.cell, "routes", at_cell)
    monkeypatch.setattr(migrating, "REST_S", 0.0)
    monkeypatch.setattr(migration_steps, "LOOK_EVERY_S", 0.0)
    plane.world.add("sales")
    return made


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    file = tmp_path / "it's a dump"
    file.write_bytes(os.urandom(3 * PART + 17))
    return file


def test_a_file_arrives_in_parts(stand_in: Migrating, cli: Cli, dump: Path) -> None:
    stand_in.unheard = 2
    ran = cli("migrate", "sales", "--from-file", str(dump), "--format", "rdb", "--dry-run")
    assert (ran.code, ran.err.splitlines()[-1]) == (0, "awaiting_source")
    assert stand_in.received == dump.read_bytes()
    source = {"kind": "upload", "format": "rdb"}
    assert stand_in.wanted == {"source": source, "mode": "copy", "dry_run": True}
    parts = [one for one in stand_in.plane.cell.seen if one.method == "PUT"]
    assert [len(one.body) for one in parts] == [PART, PART, PART, 17]
    # No token travels along.
    assert {one.token for one in parts} == {None}


@pytest.mark.parametrize(
    ("name", "options", "source"),
    one_in(
        3,
        [
            ("customers.csv", (), {"format": "files", "table": "customers"}),
            ("a.b.parquet", (), {"format": "files", "table": "a.b"}),
            ("customers.csv.gz", ("--table", "c"), {"format": "files", "table": "c"}),
            ("customers.txt", ("--format", "files"), {"format": "files", "table": "customers"}),
            ("shop.tar.zst", (), {"format": "files"}),
            ("shop.tgz", (), {"format": "files"}),
            ("shop.tar", (), {"format": "files"}),
            ("dump.tar", (), {}),
            ("sales.dump", (), {}),
        ],
        several=True,
    ),
)
def test_csv_and_parquet_are_known_by_their_names(
    stand_in: Migrating,
    cli: Cli,
    tmp_path: Path,
    name: str,
    options: tuple[str, ...],
    source: dict[str, str],
) -> None:
    file = tmp_path / name
    with tarfile.open(file, "w") as archive:
        archive.addfile(tarfile.TarInfo("shop/goods.csv.gz" if name == "shop.tar" else "toc.dat"))
    ran = cli("migrate", "sales", "--from-file", str(file), *options)
    assert ran.code == 0, ran.err
    assert stand_in.wanted["source"] == {"kind": "upload", **source}


def test_of_an_archive_no_table_is_said(stand_in: Migrating, cli: Cli, dump: Path) -> None:
    archive = dump.with_name("shop.tar.gz")
    archive.write_bytes(b"x")
    for given, told in (
        (("--from-file", str(archive), "--table", "t"), "--table is for a single CSV"),
        (("--from-file", str(dump), "--format", "rdb", "--table", "t"), "--table is for a single"),
        (("--from-uri", URI, "--table", "t"), "--table is for --from-file"),
    ):
        ran = cli("migrate", "sales", *given)
        assert (ran.code != 0, told in ran.err) == (True, True), ran.err
    assert stand_in.wanted is None


@pytest.mark.parametrize("fault", ["drop", "expired", "lost", "late", "busy"])
def test_what_breaks_on_the_way_goes_on(
    stand_in: Migrating, cli: Cli, dump: Path, fault: str
) -> None:
    cell, put = stand_in.plane.cell, stand_in.at_cell
    faults = [fault]

    def broken(seen: Seen) -> Scripted:
        if seen.method != "PUT" or len(stand_in.received) != PART or not faults:
            return put(seen)
        faults.clear()
        if fault == "expired":
            stand_in.live = "gone"
            return put(seen)
        if fault == "lost":
            put(seen)
        scripted = {"late": 408, "busy": 503}.get(fault)
        return DROP if scripted is None else problem(scripted, "No", "not now")

    routes = type(cell).routes

    def at(seen: Seen) -> Scripted:
        return broken(seen) if "/migration-source/" in seen.path else routes(cell, seen)

    cell.routes = at  # type: ignore[method-assign]
    ran = cli("migrate", "sales", "--from-file", str(dump))
    assert (ran.code, faults) == (0, []), ran.err
    assert stand_in.received == dump.read_bytes()


def test_what_was_broken_off_is_resumed(stand_in: Migrating, cli: Cli, dump: Path) -> None:
    path = "/v1/migration-source/token1"
    cell = stand_in.plane.cell
    cell.script("GET", path, *[DROP] * 20)
    ran = cli("migrate", "sales", "--from-file", str(dump))
    assert ran.code == 1
    again = f"menagerie migrate sales --from-file '{tmp_quoted(dump)}' --resume mig_"
    assert again in ran.err
    stand_in.received, stand_in.total = dump.read_bytes()[:PART], 3 * PART + 17
    migration_id = stand_in.shown()["id"]
    ran = cli("migrate", "sales", "--from-file", str(dump), "--resume", migration_id)
    assert ran.code == 0, ran.err
    assert stand_in.received == dump.read_bytes()
    assert len(cell.asked("PUT", stand_in.live)) == 3


def tmp_quoted(file: Path) -> str:
    return str(file).replace("'", "'\"'\"'")


@pytest.mark.parametrize("way", ["stdin", "variable", "argument"])
def test_a_uri_goes_to_the_cell_alone(
    stand_in: Migrating, cli: Cli, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{URI}\n"))
    if way == "variable":
        monkeypatch.setenv("MENAGERIE_SOURCE_URI", URI)
    given = {"stdin": ["--from-uri", "-"], "variable": [], "argument": ["--from-uri", URI]}[way]
    ran = cli("migrate", "sales", *given, "--sync", "--source-tls", "require")
    assert ran.code == 0, ran.err
    assert stand_in.connection == {"uri": URI, "tls": "require"}
    assert stand_in.wanted["mode"] == "copy_and_sync"
    assert "sEcReT" not in ran.out + ran.err
    sent = [(one.path, one.query, one.body) for one in stand_in.plane.seen]
    assert "sEcReT" not in repr(sent)


def test_the_answer_to_a_uri_may_be_lost(stand_in: Migrating, cli: Cli) -> None:
    cell, put = stand_in.plane.cell, stand_in.at_cell
    routes, pending = type(cell).routes, ["drop"]

    def at(seen: Seen) -> Scripted:
        if "/migration-source/" not in seen.path:
            return routes(cell, seen)
        answer = put(seen)
        return DROP if seen.method == "PUT" and pending and pending.pop() else answer

    cell.routes = at  # type: ignore[method-assign]
    ran = cli("migrate", "sales", "--from-uri", URI)
    assert ran.code == 0, ran.err
    assert stand_in.status == ["awaiting_source"]


def test_a_refused_source_cancels_the_migration(stand_in: Migrating, cli: Cli) -> None:
    refused = problem(422, "Unprocessable", "uri must begin with postgresql://")
    stand_in.plane.cell.script("PUT", "/v1/migration-source/token1", refused)
    ran = cli("migrate", "sales", "--from-uri", "nonsense")
    assert ran.code == 6
    assert "the migration was cancelled" in ran.err
    assert stand_in.status == ["cancelled"]


def test_it_is_followed_to_its_end(stand_in: Migrating, cli: Cli, dump: Path) -> None:
    stand_in.status = [
        "awaiting_source",
        "preflight",
        "copying",
        "copying",
        "verifying",
        "completed",
    ]
    ran = cli("migrate", "sales", "--from-file", str(dump), "--wait", "-o", "json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["status"] == "completed"
    told = ran.err.splitlines()[-4:]
    assert told == ["preflight", "copying: 5 B of 10 B, about 3 s left", "verifying", "completed"]


def test_with_sync_it_is_followed_until_it_syncs(stand_in: Migrating, cli: Cli) -> None:
    stand_in.status = ["awaiting_source", "copying", "syncing"]
    ran = cli("migrate", "sales", "--from-uri", URI, "--sync", "--wait")
    migration_id = stand_in.shown()["id"]
    assert ran.code == 0
    assert ran.err.endswith(f"then run: menagerie migrations cutover sales {migration_id}\n")


def test_one_that_fails_says_why(stand_in: Migrating, cli: Cli) -> None:
    stand_in.status = ["awaiting_source", "failed"]
    stand_in.reason = "the extension \x1b[2Jpostgis is missing"
    ran = cli("migrate", "sales", "--from-uri", URI, "--dry-run", "--wait")
    assert ran.code == 1
    assert "the migration is failed: the extension \ufffd[2Jpostgis is missing" in ran.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "say where the data comes from"),
        (["--from-file", "DUMP", "--from-uri", URI], "exclude each other"),
        (["--from-file", "DUMP", "--sync"], "a file does not change"),
        (["--from-file", "missing"], "is not a file"),
        (["--from-file", "EMPTY"], "is empty"),
        (["--from-uri", URI, "--format", "rdb"], "--format is for --from-file"),
        (["--from-uri", URI, "--source-ca", "missing"], "cannot read certificates"),
        (["--from-uri", "-"], "no URI was given"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_sent(
    stand_in: Migrating,
    cli: Cli,
    dump: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    said: str,
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    empty = dump.with_name("empty")
    empty.touch()
    ran = cli(
        "migrate", "sales", *({"DUMP": str(dump), "EMPTY": str(empty)}.get(w, w) for w in words)
    )
    assert (ran.code, said in ran.err) == (2, True), ran.err
    assert stand_in.wanted is None


def test_without_an_instance_it_names_the_command_that_it_was(home: Path, cli: Cli) -> None:
    assert home
    ran = cli("migrate")
    assert (ran.code, "menagerie upgrade-database" in ran.err) == (2, True)


def test_a_source_url_without_tls_gets_nothing(stand_in: Migrating, cli: Cli) -> None:
    stand_in.url = lambda: "http://192.0.2.1/v1/migration-source/x"  # type: ignore[method-assign]
    ran = cli("migrate", "sales", "--from-uri", URI)
    assert (ran.code, "is not https" in ran.err) == (1, True)


def test_one_that_goes_on_is_not_cancelled_by_a_late_source(
    stand_in: Migrating, cli: Cli, dump: Path
) -> None:
    stand_in.received_at, stand_in.status = "now", ["copying"]
    for source in (["--from-uri", URI], ["--from-file", str(dump)]):
        ran = cli("migrate", "sales", *source, "--resume", stand_in.shown()["id"])
        assert ran.code == 5, ran.err
    assert stand_in.status == ["copying"]
