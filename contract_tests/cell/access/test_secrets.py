"""Secrets at rest: a revealed password is found nowhere in what the cell writes (promise 48)."""

import contextlib
import stat
from pathlib import Path

from contract_tests.cell.rig import Rig


def contents(rig: Rig) -> dict[Path, bytes]:
    found = {rig.log_path: rig.log_path.read_bytes()}
    for path in rig.home.rglob("*"):
        # What is written by way of another file is there for a moment only.
        with contextlib.suppress(FileNotFoundError):
            if path.is_file():
                found[path] = path.read_bytes()
    return found


def test_no_password_lies_about(rig: Rig) -> None:
    instance_id = rig.make()
    passwords = [rig.reveal(instance_id)["password"], rig.rotate(instance_id)["password"]]
    rig.query(instance_id, passwords[1], "CREATE TABLE canary AS SELECT 1 AS n")
    rig.query(instance_id, "no password", "SELECT 1")
    rig.query(instance_id, passwords[0], "SELECT no_such_column")
    rig.action(instance_id, "snapshot", {"label": "x"})
    rig.action(instance_id, "pause")
    rig.action(instance_id, "resume")
    tokens = rig.token(instance_id, "reveal")
    with rig.client() as http:
        assert http.get(f"/v1/reveal/{tokens}").status_code == 200
    gateway_token = (rig.home / "run" / "gateway.token").read_bytes()
    running = contents(rig)
    rig.terminate()
    for found in (running, contents(rig)):
        # The search itself works: what is not secret is found.
        assert any(instance_id.encode() in content for content in found.values())
        for secret in passwords:
            assert [p for p, content in found.items() if secret.encode() in content] == []
        holders = {path.name for path, content in found.items() if gateway_token in content}
        assert holders == {"gateway.token"}
        assert [p for p, content in found.items() if tokens.encode() in content] == []
        key = (rig.home / "seal.key").read_bytes()
        assert [p.name for p, content in found.items() if key in content] == ["seal.key"]


def test_what_is_secret_is_for_the_cell_alone(light_rig: Rig) -> None:
    light_rig.make()
    for name in ("seal.key", "cell.db", "run/gateway.token", "routes.json"):
        mode = (light_rig.home / name).stat().st_mode
        assert stat.S_IMODE(mode) & 0o077 == 0, name


def test_an_erased_instance_leaves_no_credential(light_rig: Rig) -> None:
    instance_id = light_rig.make()
    light_rig.action(instance_id, "erase")
    token = light_rig.token(instance_id, "reveal")
    with light_rig.client() as http:
        assert http.get(f"/v1/reveal/{token}").status_code == 409
