"""The commands of docs/siem.md are pasted as they are, and what the page says of them holds."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from contract_tests.api.harness import Tenant
from contract_tests.clients.test_control_plane import Served, served, tenant
from control.sealing import Sealer
from control.siem import ocsf, targets
from control.siem.lines import Lines
from control.siem.targets import SiemBatch
from storage.columns import EPOCH
from storage.events.siem_deliveries import SiemDelivery, StreamPositions

__all__ = ["served", "tenant"]

GUIDE = (Path(__file__).parents[2] / "docs" / "siem.md").read_text()
COMMANDS = re.findall(r"^    (menagerie .+\n(?:      .+\n)*)", GUIDE, re.MULTILINE)
SECTIONS = ["Splunk", "Datadog", "S3 and Athena"]
DONE_S = 120


def pasted(folder: Path, command: str) -> dict[str, Any]:
    """What it prints, where the program `menagerie` is this one."""
    program = shlex.join([sys.executable, "-m", "menagerie"])
    text = f'menagerie() {{ {program} "$@" -o json; }}\n{command}'
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        ["bash", "-c", text],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=DONE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("place", range(len(SECTIONS)), ids=SECTIONS)
def test_each_command_makes_the_delivery_that_it_says(
    served: Served, tenant: Tenant, folder: Path, place: int
) -> None:
    assert len(COMMANDS) == len(SECTIONS)
    words = shlex.split(COMMANDS[place])
    target = json.loads(words[words.index("--target") + 1])
    made = pasted(folder, COMMANDS[place])
    shown = {name: value for name, value in made["target"].items() if value is not None}
    assert shown == {name: each for name, each in target.items() if name not in targets.SECRETS}
    assert made["format"] == ("ocsf" if "ocsf" in words else "envelope")
    assert (made["signing_secret"] is None) == (target["kind"] == "s3")
    with served.house.database.read() as db:
        sealed = db.get_one(SiemDelivery, made["id"]).sealed
    context = f"siem delivery {made['id']}"
    secrets = orjson.loads(served.house.services.sealer.open(sealed, context))
    assert {name: target[name] for name in targets.SECRETS if name in target}.items() <= (
        secrets.items()
    )


def test_the_policy_and_the_table_are_of_the_objects_that_are_written(tmp_path: Path) -> None:
    words = shlex.split(COMMANDS[2])
    target = json.loads(words[words.index("--target") + 1])
    (policy,) = re.findall(r"^    (\{\"Version\".+\n      .+)\n", GUIDE, re.MULTILINE)
    (statement,) = json.loads(policy)["Statement"]
    allowed = f"arn:aws:s3:::{target['bucket']}/{target['prefix']}"
    assert (statement["Action"], statement["Resource"]) == ("s3:PutObject", f"{allowed}*")
    org_id = re.findall(r"menagerie/(org_[0-9A-Z]{26})/'\n", GUIDE)[0]
    lines = Lines(b"{}", 1, EPOCH, StreamPositions(1, 0, 0), is_full=False)
    sealer = Sealer(bytes(32))
    batch = SiemBatch("siem_1", org_id, "s3", target, sealer.seal(b"{}", "x"), 7, lines)
    (folder,) = re.findall(r"location\.template' = '(s3://[^']+)'", GUIDE)
    day = f"{EPOCH:%Y/%m/%d}"
    begins = folder.replace("${day}", day).removeprefix(f"s3://{target['bucket']}/")
    assert batch.object_name == f"{begins}siem_1-000000000007.ndjson.gz"
    assert "<prefix><org id>/<year>/<month>/<day>/<delivery id>-<number>.ndjson.gz" in GUIDE
    assert "yyyy/MM/dd" in GUIDE


def test_the_classes_are_those_that_are_sent() -> None:
    named = {int(number) for number in re.findall(r"\((\d+)\) \|", GUIDE)}
    assert named == {
        *(ocsf.BASE, ocsf.NETWORK_ACTIVITY, ocsf.ACCOUNT_CHANGE, ocsf.AUTHENTICATION),
        *(ocsf.ENTITY_MANAGEMENT, ocsf.API_ACTIVITY),
    }
    assert "1.5.0" in GUIDE
    assert ocsf.VERSION == "1.5.0"
