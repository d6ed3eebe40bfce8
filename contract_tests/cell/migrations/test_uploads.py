"""Files of pg_dump that are sent and restored as the owner, or leave the instance as it was."""

import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from contract_tests.by_day import one_in
from contract_tests.cell.migrations.conftest import STORAGE_BYTES
from contract_tests.cell.migrations.migration_calls import (
    CONNECTION,
    UPLOAD,
    ask,
    begin,
    begun,
    observed,
    send,
    status_is,
    token,
    unchanged,
)
from contract_tests.cell.migrations.source_server import SourceDatabase
from contract_tests.cell.rig import SMALL, Rig, until

pytestmark = pytest.mark.usefixtures("emptied")

PART = 8 * 2**20
FORMATS = ["postgres_custom", "postgres_directory", "postgres_plain"]


@pytest.fixture(scope="module")
def instance_id(migrating: Rig) -> str:
    return migrating.make(size={**SMALL, "storage_bytes": STORAGE_BYTES})


def uploaded(rig: Rig, instance_id: str, content: bytes, *ends: str, **more: Any) -> dict[str, Any]:
    migration_id = begun(rig, instance_id, UPLOAD, **more)
    answer = send(rig, token(rig, instance_id, migration_id), content)
    assert answer.status_code == 200, answer.text
    assert answer.json()["received_at"] is not None
    return status_is(rig, instance_id, migration_id, *(ends or ("completed",)))


def as_before(rig: Rig, instance_id: str) -> None:
    """As before the migration, and nothing lies beside."""
    unchanged(rig, instance_id)
    assert ask(rig, instance_id, "SELECT relname FROM pg_class WHERE relnamespace = 2200") == []


@pytest.mark.parametrize("form", one_in(4, FORMATS))
def test_a_file_of_each_format_is_restored_as_the_owner(
    migrating: Rig, instance_id: str, files: dict[str, bytes], form: str
) -> None:
    seen = uploaded(migrating, instance_id, files[form])
    assert seen["preflight"]["source"]["version"] == "17.10"
    assert seen["verification"]["differences"] == []
    assert seen["verification"]["rows_compared"] == 6000
    assert seen["progress"]["tables_done"] == 2
    assert seen["progress"]["bytes_done"] == len(files[form])
    owners = "SELECT DISTINCT relowner::regrole::text FROM pg_class WHERE relname ~ '^(cust|Ord)'"
    assert ask(migrating, instance_id, owners) == [("app",)]
    counted = 'SELECT count(*), max(told) FROM "sh.op"."Orders" JOIN customers c ON c.id = customer'
    assert ask(migrating, instance_id, counted) == [(5000, "\r\n\\.999")]
    assert ask(migrating, instance_id, "SELECT lo_get(4242)") == [(b"a large object",)]
    assert ask(migrating, instance_id, "SELECT 'a=>1'::hstore -> 'a'") == [("1",)]
    databases = ask(migrating, instance_id, "SELECT count(*) FROM pg_database")
    assert databases == [(4,)]
    assert not (migrating.home / "instances" / instance_id / "migration").exists()


@pytest.mark.nightly
def test_a_large_file_is_sent_in_parts_and_goes_on_where_it_ended(
    migrating: Rig, instance_id: str, shop: SourceDatabase
) -> None:
    rows = "SELECT n, repeat(md5(n::text), 20) v FROM generate_series(1, 15000) n"
    shop.ask(f"CREATE TABLE t AS {rows}")
    content = shop.dump()
    assert len(content) > PART
    migration_id = begun(migrating, instance_id, UPLOAD)
    first = token(migrating, instance_id, migration_id)

    def part(url: str, begin: int, end: int, of: int = len(content)) -> Any:
        return send(migrating, url, content[begin:end], f"bytes {begin}-{end - 1}/{of}")

    assert part(first, 0, PART).json()["received_bytes"] == PART
    for begins, of in ((PART + 1, len(content)), (PART, len(content) + 1), (0, 10**10)):
        refused = part(first, begins, begins + 100, of)
        wanted = (413, "content_too_large") if of == 10**10 else (409, "wrong_offset")
        assert (refused.status_code, refused.json()["code"]) == wanted
    assert part(first, PART, PART + 5, len(content)).json()["received_bytes"] == PART + 5
    unfitting = send(migrating, first, b"abc", f"bytes {PART}-{PART + 9}/{len(content)}")
    assert unfitting.status_code == 422
    # A cell that was killed knows what it has; so does another URL.
    migrating.kill()
    migrating.start()
    migrating.status_is(instance_id, "running")
    second = token(migrating, instance_id, migration_id)
    with migrating.client() as http:
        told = http.get(f"/v1/migration-source/{second}").json()
    assert (told["received_bytes"], told["total_bytes"]) == (PART + 5, len(content))
    assert part(second, PART + 5, len(content)).json()["received_at"] is not None
    again = part(second, 0, 100)
    assert (again.status_code, again.json()["code"]) == (410, "used")
    late = part(first, 0, 100)
    assert (late.status_code, late.json()["code"]) == (409, "conflict")
    seen = status_is(migrating, instance_id, migration_id, "completed")
    assert seen["verification"]["rows_compared"] == 15000


def test_a_url_is_of_one_migration_of_one_instance(
    migrating: Rig, instance_id: str, files: dict[str, bytes]
) -> None:
    migration_id = begun(migrating, instance_id, UPLOAD)
    other = migrating.make(engine="valkey", engine_version="9.1")
    for wrong, status in (
        (token(migrating, other, migration_id), 404),
        (token(migrating, instance_id, "mig_01JD0000000000000000000000"), 404),
        (migrating.token(instance_id, "reveal", migration_id=migration_id), 403),
        (token(migrating, instance_id, migration_id, ttl_s=-10), 410),
        ("x" * 40, 403),
    ):
        answer = send(migrating, wrong, files["postgres_custom"])
        assert answer.status_code == status, answer.text
    right = token(migrating, instance_id, migration_id)
    wrong_kind = send(migrating, right, {"uri": "postgresql://a:b@example.com/c"})
    assert (wrong_kind.status_code, wrong_kind.json()["code"]) == (409, "wrong_source")
    assert send(migrating, right, b"").status_code == 422
    second = begin(migrating, instance_id, UPLOAD)
    assert second.status_code == 409
    assert migration_id in second.json()["detail"]
    cancelled = migrating.act("DELETE", f"/v1/instances/{instance_id}/migrations/{migration_id}")
    assert cancelled.status_code == 200
    status_is(migrating, instance_id, migration_id, "cancelled")
    assert send(migrating, right, files["postgres_custom"]).status_code == 409
    as_before(migrating, instance_id)


@pytest.mark.nightly
def test_of_two_that_send_at_once_nothing_is_mixed(
    migrating: Rig, instance_id: str, files: dict[str, bytes]
) -> None:
    content = files["postgres_custom"]
    migration_id = begun(migrating, instance_id, UPLOAD)
    urls = [token(migrating, instance_id, migration_id) for _ in range(6)]
    with ThreadPoolExecutor(len(urls)) as threads:
        answers = list(threads.map(lambda url: send(migrating, url, content), urls))
    statuses = sorted(each.status_code for each in answers)
    assert statuses.count(200) == 1
    assert set(statuses) <= {200, 409, 503}
    seen = status_is(migrating, instance_id, migration_id, "completed")
    assert seen["verification"]["rows_compared"] == 6000


@pytest.mark.nightly
def test_a_part_that_never_arrives_holds_no_place(
    migrating: Rig, instance_id: str, files: dict[str, bytes]
) -> None:
    """Whoever hangs up half-way goes on at once, and so does everybody else."""
    content = files["postgres_custom"]
    migration_id = begun(migrating, instance_id, UPLOAD)
    url = token(migrating, instance_id, migration_id)
    head = f"PUT /v1/migration-source/{url} HTTP/1.1\r\nHost: cell\r\nContent-Length: 9999\r\n"
    with socket.socket(socket.AF_UNIX) as slow:
        slow.connect(migrating.socket)
        slow.sendall(f"{head}Content-Type: application/octet-stream\r\n\r\nx".encode())
        refused = until(
            lambda: (
                (answer := send(migrating, url, b"x", "bytes 7-7/9")).status_code == 503 and answer
            ),
            "the part is arriving",
        )
        assert refused.json()["detail"] == (
            "another part of the source is arriving; try again in a second"
        )
    # Before a body that stays away would be given up.
    sent = until(
        lambda: (answer := send(migrating, url, content)).status_code == 200 and answer,
        "there is a place again",
        within_s=15,
    )
    assert sent.json()["received_at"] is not None
    status_is(migrating, instance_id, migration_id, "completed")


def test_what_an_engine_does_not_take_is_refused_at_once(migrating: Rig, instance_id: str) -> None:
    other = migrating.make(engine="valkey", engine_version="9.1")
    for target, source, mode in (
        (other, {"kind": "upload", "format": "duckdb"}, "copy"),
        (instance_id, {"kind": "upload", "format": "rdb"}, "copy"),
        (instance_id, UPLOAD, "copy_and_sync"),
    ):
        answer = begin(migrating, target, source, mode)
        assert answer.status_code == 409, answer.text
    migration_id = "mig_01JD0000000000000000000001"
    begun(migrating, instance_id, UPLOAD, migration_id=migration_id)
    assert begin(migrating, instance_id, UPLOAD, migration_id=migration_id).status_code == 200
    otherwise = begin(migrating, instance_id, CONNECTION, migration_id=migration_id)
    assert otherwise.status_code == 409
    migrating.act("DELETE", f"/v1/instances/{instance_id}/migrations/{migration_id}")
    status_is(migrating, instance_id, migration_id, "cancelled")


@pytest.mark.parametrize(
    ("content", "reason"),
    one_in(
        4,
        [
            (b"\x00\x01garbage" * 1000, "is not one that can be restored"),
            (b"\x1f\x8b" + b"x" * 100, "compressed"),
            (b"PGDMP\x01\x10\x00" + b"\xff" * 500, "cannot be read"),
            (b"CREATE TABLE t (n int);\n\\! touch /tmp/x\n", "commands of psql"),
            (b"CREATE TABLE t (n int);\nCOPY t FROM PROGRAM 'id';\n", "permission denied"),
            (b"CREATE TABLE t (n int);\nCOPY t FROM '/etc/passwd';\n", "permission denied"),
            (b"CREATE ROLE r SUPERUSER;\n", "permission denied"),
            (
                b"SET ROLE menagerie;\nCREATE TABLE public.t (n int);\nSELECT 1/0;\n",
                "division by zero",
            ),
            (b"\\connect postgres\nCREATE TABLE t (n int);\n", "commands of psql"),
            (b"\\unrestrict abc\n\\! id\n", "commands of psql"),
            (b"CREATE EXTENSION dblink;\n", "permission denied"),
        ],
        several=True,
    ),
)
def test_a_hostile_file_changes_nothing(
    migrating: Rig, instance_id: str, content: bytes, reason: str
) -> None:
    seen = uploaded(migrating, instance_id, content, "failed")
    assert reason in seen["reason"], seen
    as_before(migrating, instance_id)


@pytest.mark.parametrize(
    "statement",
    one_in(
        3, ["DROP DATABASE app", "DROP DATABASE app WITH (FORCE)", "ALTER DATABASE app RENAME TO x"]
    ),
)
def test_whatever_a_file_does_there_is_a_database_for_clients(
    migrating: Rig, instance_id: str, statement: str
) -> None:
    uploaded(migrating, instance_id, f"{statement};\nSELECT 1/0;\n".encode(), "failed")
    assert ask(migrating, instance_id, "SELECT 1") == [(1,)]
    ask(migrating, instance_id, "DROP DATABASE IF EXISTS x")
    as_before(migrating, instance_id)


@pytest.mark.nightly
def test_a_file_that_grows_beyond_the_storage_ends_there(migrating: Rig, instance_id: str) -> None:
    rows = b"SELECT repeat(md5(n::text), 30) FROM generate_series(1, 3000000) n"
    content = b"CREATE TABLE t AS " + rows + b";"
    seen = uploaded(migrating, instance_id, content, "failed")
    assert "storage" in seen["reason"] or "space" in seen["reason"], seen
    migrating.status_is(instance_id, "running")
    writable = "SHOW default_transaction_read_only"
    until(lambda: ask(migrating, instance_id, writable) == [("off",)], "it has room again")
    as_before(migrating, instance_id)


def test_an_instance_with_objects_is_left_alone(
    migrating: Rig, instance_id: str, files: dict[str, bytes]
) -> None:
    ask(migrating, instance_id, "CREATE TABLE mine AS SELECT 1 AS n")
    seen = uploaded(migrating, instance_id, files["postgres_custom"], "failed")
    assert seen["preflight"]["findings"][0]["code"] == "target_not_empty"
    assert ask(migrating, instance_id, "SELECT n FROM mine") == [(1,)]


def test_a_dry_run_changes_nothing(
    migrating: Rig, instance_id: str, files: dict[str, bytes]
) -> None:
    seen = uploaded(migrating, instance_id, files["postgres_custom"], dry_run=True)
    codes = {each["code"] for each in seen["preflight"]["findings"]}
    assert codes == {"format", "grants"}
    assert seen["verification"] is None
    as_before(migrating, instance_id)


@pytest.mark.nightly
def test_only_what_the_tools_need_is_seen_by_them(
    migrating: Rig, instance_id: str, files: dict[str, bytes]
) -> None:
    """The data of the instance, and the socket's folder to write in, are not among it."""
    migration_id = begun(migrating, instance_id, UPLOAD)
    content = b"SELECT pg_sleep(30);\n"
    assert send(migrating, token(migrating, instance_id, migration_id), content).status_code == 200
    status_is(migrating, instance_id, migration_id, "copying")
    command = ["pgrep", "-f", f"bwrap.*{instance_id[5:].lower()}.*psql.*ON_ERROR_STOP=0"]
    pid = ""
    while not pid:
        pid = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
        assert observed(migrating, instance_id, migration_id)["status"] != "failed"
    words = Path(f"/proc/{pid.split()[0]}/cmdline").read_text().split("\0")
    assert not [each for each in words if each.endswith(("/data", "/conf"))]
    assert words[words.index("/instance/run") - 2] == "--ro-bind"
    migrating.act("DELETE", f"/v1/instances/{instance_id}/migrations/{migration_id}")
    status_is(migrating, instance_id, migration_id, "cancelled")
    as_before(migrating, instance_id)
