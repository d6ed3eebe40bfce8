"""The image: built on a base of the machine's own Debian, run, and walked from outside of it."""

import json
import os
import resource
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from contract_tests.end_to_end.engine_clients import connect
from contract_tests.end_to_end.installation import SETTINGS, Installation, order, wait_for
from contract_tests.end_to_end.test_engines import place_of
from menagerie.settings import GATEWAY_PORTS

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3600)]

ROOT = Path(__file__).resolve().parents[2]
ENGINES = ("duckdb", "postgres", "valkey", "redis", "mariadb", "meilisearch")
PROGRAMS = ("debootstrap", "podman", "runc")
BASE, IMAGE = "localhost/base:test", "localhost/menagerie:test"
VOLUME = "/var/lib/menagerie"
AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
READY_S, STOP_S = 180, 60
LIMIT = 8192
SIZE_MAX_BYTES = 10**9
PIP_OPTIONS = ("index-url", "extra-index-url", "proxy", "trusted-host", "timeout")


def limits() -> list[str]:
    """Of this process: podman asks for more than a machine with few rights may give."""
    numbers = {"nofile": resource.RLIMIT_NOFILE, "nproc": resource.RLIMIT_NPROC}
    found = {name: resource.getrlimit(number)[0] for name, number in numbers.items()}
    least = {name: min(most, LIMIT) if most > 0 else LIMIT for name, most in found.items()}
    return [f"--ulimit={name}={most}:{most}" for name, most in least.items()]


@dataclass(frozen=True)
class Podman:
    """With a store of its own, of which nothing stays."""

    folder: Path

    def make(self) -> None:
        (self.folder / "containers.conf").write_text(
            '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
            f'tmp_dir = "{self.folder}/tmp"\n'
        )
        store = f'graphroot = "{self.folder}/graph"\nrunroot = "{self.folder}/run"\n'
        (self.folder / "storage.conf").write_text(f'[storage]\ndriver = "overlay"\n{store}')

    def run(self, *words: str, check: bool = True, both: bool = False) -> str:
        """What it wrote to its output, and with `both` what it wrote as errors after it."""
        done = subprocess.run(
            ["podman", "--log-level=error", *words],
            env={
                **os.environ,
                "CONTAINERS_CONF": str(self.folder / "containers.conf"),
                "CONTAINERS_STORAGE_CONF": str(self.folder / "storage.conf"),
            },
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert not check or done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return (done.stdout + done.stderr * both).strip()

    def destroy(self) -> None:
        """Of this store alone: `podman system reset` would reach into the machine's own."""
        for words in (("rm", "--all"), ("rmi", "--all")):
            self.run(*words, "--force", check=False)
        subprocess.run(["umount", f"{self.folder}/graph/overlay"], capture_output=True, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


class Container(Installation):
    """An installation whose `serve` is the image's own command; its volume is a folder of ours."""

    def __init__(self, podman: Podman, volume: Path) -> None:
        super().__init__(volume / "home")
        self.podman, self.volume = podman, volume
        self.name = "menagerie-test"

    def start(self, *options: str) -> str:
        self.volume.mkdir(mode=0o755, exist_ok=True)
        free = {"PORT": "0"} | {f"GATEWAY_{name}_PORT".upper(): "0" for name in GATEWAY_PORTS}
        given = SETTINGS | {f"MENAGERIE_{name}": value for name, value in free.items()}
        words = [f"--env={name}={value}" for name, value in given.items()]
        words += [*limits(), "--network=host", f"--volume={self.volume}:{VOLUME}", *options]
        self.podman.run("run", "--detach", "--replace", f"--name={self.name}", *words, IMAGE)
        try:
            self.inside("menagerie", "wait", "--timeout", str(READY_S))
        except AssertionError as error:
            error.add_note(f"its log:\n{self.log[-3000:]}")
            raise
        return self.log

    def inside(self, *words: str) -> str:
        return self.podman.run("exec", self.name, *words)

    @property
    def log(self) -> str:
        return self.podman.run("logs", self.name, both=True)

    @property
    def endpoints(self) -> dict[str, Any]:
        found = json.loads((self.home / "endpoints.json").read_text())
        return {**found, "ca_file": found["ca_file"].replace(VOLUME, str(self.volume))}

    def end(self) -> int:
        """By SIGTERM, as `docker stop` does; the exit status."""
        self.podman.run("stop", f"--time={STOP_S}", self.name)
        return int(self.podman.run("inspect", self.name, "--format={{.State.ExitCode}}"))


def base(podman: Podman) -> None:
    """A Debian of this machine's own release and source, with Python."""
    told = subprocess.check_output(
        ["apt-get", "indextargets", "--format", "$(ORIGIN)|$(CODENAME)|$(REPO_URI)"], text=True
    )
    release = ["sh", "-c", '. /etc/os-release && echo "$ID $VERSION_CODENAME"']
    distribution, codename = subprocess.check_output(release, text=True).split()
    if distribution != "debian":
        pytest.skip("this machine does not run Debian")
    sources = {line.split("|")[2] for line in told.splitlines() if f"Debian|{codename}|" in line}
    assert sources, "no package source of Debian is configured"
    folder = podman.folder / "base"
    words = ["debootstrap", "--variant=minbase", "--include=python3,python3-venv,ca-certificates"]
    done = subprocess.run(
        [*words, codename, str(folder), min(sources, key=len)],
        env={**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    archive = podman.folder / "base.tar"
    subprocess.run(["tar", "-C", str(folder), "-cf", str(archive), "."], check=True)
    podman.run("import", str(archive), BASE)
    shutil.rmtree(folder)
    archive.unlink()


def build(podman: Podman) -> None:
    """With this machine's way to the package index, lent to the build, which stays in no layer."""
    told = subprocess.check_output(["python3", "-m", "pip", "config", "list"], text=True)
    lines = ["[global]"] + (["cert = /run/secrets/ca.pem"] * AUTHORITIES.exists())
    for line in told.splitlines():
        name, _, value = line.partition("=")
        option = name.rpartition(".")[2]
        if option in PIP_OPTIONS and "file:" not in value:
            lines.append(f"{option} = {value.strip(chr(39))}")
    secret = podman.folder / "pip.conf"
    secret.write_text("\n".join(lines) + "\n")
    secrets = [f"--secret=id=pip.conf,src={secret}"]
    if AUTHORITIES.exists():
        secrets.append(f"--secret=id=ca.pem,src={AUTHORITIES}")
    words = [*limits(), "--network=host", "--format=docker", f"--build-arg=BASE={BASE}", *secrets]
    podman.run("build", *words, f"--tag={IMAGE}", ".")


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    if os.geteuid() != 0:
        pytest.skip("only root makes a base with debootstrap")
    search = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    if absent := [name for name in PROGRAMS if shutil.which(name, path=search) is None]:
        pytest.skip(f"not installed: {', '.join(absent)} (make test-nightly installs them)")
    made = Podman(tmp_path_factory.mktemp("podman"))
    made.make()
    try:
        base(made)
        build(made)
        yield made
    finally:
        made.destroy()


def test_an_image_runs_every_engine_and_finds_all_again(podman: Podman, tmp_path: Path) -> None:
    container = Container(podman, tmp_path / "volume")
    printed = container.start()
    first = container.endpoints
    assert "  password " in printed, "the first secrets are shown"
    assert first["api_key"] in printed
    assert first["base_url"].startswith("http://127.0.0.1:")
    made = {
        engine: order(container, engine=engine, name=engine, size="f0")["id"] for engine in ENGINES
    }
    for engine, instance_id in made.items():
        with connect(engine, place_of(container, instance_id)) as session:
            session.make()
            session.write([1, 2, 3])
    users = podman.run("top", container.name, "user", "args").splitlines()
    engines = [line for line in users if "menagerie-engines" in line or "mariadbd" in line]
    assert engines, "no engine was seen"
    assert not [line for line in engines if line.split()[0] == "root"], "an engine runs as root"

    began = time.monotonic()
    assert container.end() == 0
    assert time.monotonic() - began < STOP_S
    assert "cell.stopped" in container.log

    printed = container.start()
    assert first["api_key"] not in printed, "secrets are shown once"
    assert container.endpoints["api_key"] == first["api_key"]
    for engine, instance_id in made.items():
        wait_for(container, instance_id, "running")
        with connect(engine, place_of(container, instance_id)) as session:
            assert session.read() == [1, 2, 3]
    killed_cell_is_followed(podman, container, made["valkey"])
    assert container.end() == 0


def test_the_demo_walks_inside_with_every_engine(podman: Podman, tmp_path: Path) -> None:
    """As docs/container.md has it."""
    container = Container(podman, tmp_path / "volume")
    container.start()
    for engine in ENGINES:
        told = container.inside("menagerie", "demo", "--engine", engine)
        assert "elephant" in told, engine
        assert "5400" in told, engine
    assert container.end() == 0


def killed_cell_is_followed(podman: Podman, container: Container, instance_id: str) -> None:
    """The engines go on, are adopted, and none is left to process 1 unburied."""
    told = podman.run("top", container.name, "pid", "args").splitlines()
    cell = next(line.split()[0] for line in told if "menagerie.part cell" in line)
    container.inside("sh", "-c", f"kill -9 {cell}")
    container.inside("menagerie", "wait", "--timeout", str(READY_S))
    wait_for(container, instance_id, "running")
    with connect("valkey", place_of(container, instance_id)) as session:
        session.write([4])
        assert session.read() == [1, 2, 3, 4]
    told = podman.run("top", container.name, "state", "args").splitlines()
    assert len([line for line in told if "valkey-server" in line]) == 1
    assert not [line for line in told if line.startswith("Z")]


def test_an_image_is_small_and_holds_nothing_of_the_machine(podman: Podman) -> None:
    size = int(podman.run("image", "inspect", IMAGE, "--format={{.Size}}"))
    assert size < SIZE_MAX_BYTES
    words = ["run", "--rm", "--network=none", *limits(), "--entrypoint=sh", IMAGE, "-c"]
    found = podman.run(*words, "cat /etc/pip.conf /run/secrets/* 2>/dev/null; ls /opt/menagerie")
    assert found.split() == ["bin", "include", "lib", "lib64", "pyvenv.cfg"]
