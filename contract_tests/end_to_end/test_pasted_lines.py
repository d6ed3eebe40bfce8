"""What `menagerie credentials` prints for each client works as pasted, and trusts no stranger."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from clients import hosts
from clients.cli.lines import CLIENTS, Place, line
from clients.credentials import Credential
from contract_tests.clients.pasting import pasted
from contract_tests.clients.servers import Authority
from contract_tests.end_to_end.command_line import CommandLine
from contract_tests.end_to_end.installation import Installation, order, reveal
from contract_tests.end_to_end.test_engines import refuse_missing

ENGINES = ("postgres", "mariadb", "redis", "valkey", "duckdb", "meilisearch")
# MariaDB's line is made as PostgreSQL's is, Valkey's is Redis's, and curl's is pasted by a newcomer
# (test_newcomer).
BY_DAY = frozenset({"postgres", "redis"})
CASES = [
    # An engine's first client by day; the others, of which each starts a program, at night.
    pytest.param(
        engine, client, marks=[] if place == 0 and engine in BY_DAY else [pytest.mark.nightly]
    )
    for engine in ENGINES
    for place, client in enumerate(CLIENTS[engine])
]


@pytest.fixture(scope="module")
def places(installation: Installation) -> Callable[[str], Place]:
    """An engine's instance, with its credential, as the command has it."""
    known: dict[str, Place] = {}

    def place(engine: str) -> Place:
        refuse_missing(installation, engine)
        if engine not in known:
            shown = reveal(installation, order(installation, engine=engine)["id"])
            ca_file = installation.endpoints["ca_file"]
            known[engine] = Place(engine, Credential.parse(shown), ca_file)
        return known[engine]

    return place


@pytest.mark.parametrize(("engine", "client"), CASES)
def test_each_works_as_pasted_and_trusts_no_other_authority(
    engine: str, client: str, places: Callable[[str], Place], tmp_path: Path
) -> None:
    place = places(engine)
    done = pasted(place, client, tmp_path)
    assert "42" in done.stdout, (line(client, place), done.stderr)
    stranger = str(Authority(tmp_path, "nobody.example.com").ca_file)
    refused = pasted(replace(place, ca_file=stranger), client, tmp_path)
    assert "42" not in refused.stdout
    assert any(word in refused.stderr.lower() for word in ("certificate", "verif")), refused


@pytest.mark.nightly
@pytest.mark.parametrize(("engine", "client"), CASES)
def test_the_plain_lines_work_where_names_resolve(
    engine: str,
    client: str,
    places: Callable[[str], Place],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("only root may give a process a hosts file of its own")
    place = places(engine)
    monkeypatch.setattr(hosts, "_leads_here", lambda _: True)
    (tmp_path / "hosts").write_text(f"127.0.0.1 localhost {place.credential.host}\n")
    assert "127.0.0.1" not in line(client, place)
    done = pasted(place, client, tmp_path, hosts_file=tmp_path / "hosts")
    assert "42" in done.stdout, done.stderr


def test_the_command_prints_them_all_or_the_one_asked_for(
    installation: Installation, places: Callable[[str], Place]
) -> None:
    place = places("postgres")
    with installation.api() as api:
        org = f"/v1/orgs/{installation.endpoints['org_id']}"
        found = api.get(f"{org}/instances").json()["items"]
    name = next(one["name"] for one in found if one["host"] == place.credential.host)
    command = CommandLine(installation)
    every = command.here("credentials", name).stdout
    for client in CLIENTS["postgres"]:
        assert line(client, place) + "\n" in every
    one = command.here("credentials", name, "--client", "psycopg").stdout
    assert one == line("psycopg", place) + "\n"
    record = json.loads(command.here("credentials", name, "-o", "json").stdout)
    assert Credential.parse(record) == place.credential
