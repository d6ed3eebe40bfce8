"""A full disk under the whole service: refused with 503, nothing corrupt, well again by itself."""

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from contract_tests import small_disks
from contract_tests.cell.rig import until
from contract_tests.end_to_end.installation import Installation, order, query, reveal

SIZE_BYTES = 64 * 1024 * 1024


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with small_disks.mounted(tmp_path / "disk", SIZE_BYTES) as disk:
        yield disk


def fill(path: Path) -> None:
    """Write until there is no room for one more byte."""
    with path.open("wb", buffering=0) as file:
        for block in (1 << 20, 4096, 1):
            try:
                while True:
                    os.write(file.fileno(), b"\0" * block)
            except OSError:
                continue


def new_project(api: httpx.Client, org_id: str, name: str) -> httpx.Response:
    return api.post(f"/v1/orgs/{org_id}/projects", json={"name": name})


@pytest.mark.nightly
def test_a_full_disk_refuses_writes_and_heals(small_disk: Path) -> None:
    # Storage is what an instance may grow to: far more than this disk has.
    thinly = {"MENAGERIE_OVERCOMMIT_STORAGE": "1000"}
    installation = Installation(small_disk / "home", thinly)
    try:
        installation.start()
        org_id = installation.endpoints["org_id"]
        credential = reveal(installation, order(installation)["id"])
        fill(small_disk / "filler")
        with installation.api() as api:
            refused = new_project(api, org_id, "too much")
            while refused.status_code == 201:  # room that was reserved before the disk was full
                refused = new_project(api, org_id, "too much")
            assert refused.status_code == 503, refused.text
            assert refused.headers["content-type"] == "application/problem+json"
            assert int(refused.headers["retry-after"]) > 0
            assert api.get(f"/v1/orgs/{org_id}/projects").status_code == 200
            assert query(installation, credential, "SELECT 1").status_code == 200

            (small_disk / "filler").unlink()
            until(lambda: new_project(api, org_id, "again").status_code == 201, "it is well again")
        assert query(installation, credential, "CREATE TABLE t (n INT)").status_code == 200
        assert installation.stop() == 0
        with sqlite3.connect(small_disk / "home" / "menagerie.db") as db:
            assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    finally:
        installation.destroy()
