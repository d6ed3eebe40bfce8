"""Fixtures of the clients' tests: a service to talk to, and the command line as a person has it."""

import json
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from clients.cli import run
from clients.client import Client
from clients.retries import Retries
from clients.source import SHIPPED, DocumentSource
from contract_tests.clients.stand_in import ControlPlane, running
from menagerie import contract


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


Cli = Callable[..., Ran]


@pytest.fixture(scope="session")
def shipped_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cached copy of the shipped document, which takes a moment to make."""
    cache = tmp_path_factory.mktemp("cache")
    DocumentSource("http://nowhere", cache, contract.shipped()).at_hand()
    return cache / "shipped.json"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shipped_cache: Path) -> Path:
    """A home with nothing in it but the shipped document's copy, and no variable of ours set."""
    return bare(tmp_path, monkeypatch, shipped_cache)


def bare(folder: Path, monkeypatch: pytest.MonkeyPatch, shipped_cache: Path) -> Path:
    (folder / "cache" / "menagerie").mkdir(parents=True)
    (folder / "cache" / "menagerie" / "shipped.json").write_bytes(shipped_cache.read_bytes())
    for name in list(os.environ):
        if name.startswith("MENAGERIE_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    monkeypatch.setenv("COLUMNS", "200")
    return folder


@pytest.fixture
def plane(folder: Path) -> Iterator[ControlPlane]:
    with running(folder) as plane:
        yield plane


@pytest.fixture
def home(plane: ControlPlane, folder: Path) -> Path:
    """The folder with an endpoints.json of the local server, as `menagerie serve` writes it."""
    return local(plane, folder)


def local(plane: ControlPlane, folder: Path) -> Path:
    endpoints = {
        "base_url": plane.base_url,
        "ca_file": str(folder / "ca.pem"),
        "org_id": plane.world.org_id,
        "project_id": plane.world.project_id,
        "api_key": plane.world.api_key,
        "session_token": plane.world.session_token,
        "gateway_ports": {"https": plane.cell.port},
    }
    (folder / ".menagerie").mkdir()
    (folder / ".menagerie" / "endpoints.json").write_text(json.dumps(endpoints))
    return folder


@pytest.fixture
def nowhere() -> Iterator[str]:
    """An address that refuses connections: its port is taken, and nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run one command line and answer its exit code and what it wrote."""
    SHIPPED.set(contract.shipped())

    def ran(*argv: str) -> Ran:
        capsys.readouterr()
        code = run(list(argv))
        out, err = capsys.readouterr()
        return Ran(code, out, err)

    return ran


@pytest.fixture
def client(plane: ControlPlane) -> Iterator[Client]:
    """A client that does not wait between attempts, and notes for how long it would have."""
    world = plane.world
    with Client(
        plane.base_url,
        api_key=world.api_key,
        session_token=world.session_token,
        org_id=world.org_id,
        project_id=world.project_id,
        retries=Retries(sleep=lambda _: None),
    ) as client:
        yield client
