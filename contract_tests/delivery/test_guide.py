"""The guide's code verifies what is sent, and nothing that was changed."""

import json
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from control.webhooks import signing

GUIDE = (Path(__file__).parents[2] / "docs" / "webhooks.md").read_text()
BODY = '{"id":"evt_1","data":{"name":"ü"}}'.encode()


def code(language: str) -> str:
    found = re.search(rf"```{language}\n(.+?)```", GUIDE, re.DOTALL)
    assert found is not None
    return found.group(1)


def cases() -> list[tuple[bool, str, dict[str, str], bytes]]:
    """Whether it is genuine, the secret, the headers and the body."""
    former, newer = signing.new_secret(), signing.new_secret()
    now = int(time.time())

    def headers(at: int = now, *keys: str) -> dict[str, str]:
        return signing.headers("evt_1", "x.y.v1", BODY, at, keys or (former,))

    return [
        (True, former, headers(), BODY),
        (True, former, headers(now, newer, former), BODY),
        (True, newer, headers(now, newer, former), BODY),
        (False, newer, headers(), BODY),
        (False, former, headers(), BODY + b" "),
        (False, former, headers(now - 400), BODY),
        (False, former, {**headers(), "SVC-Timestamp": str(now - 1)}, BODY),
        (False, former, {**headers(), "SVC-Timestamp": "soon"}, BODY),
        (False, former, {**headers(), "SVC-Signature": ""}, BODY),
    ]


def test_the_python_code_verifies() -> None:
    made: dict[str, Any] = {}
    exec(code("python"), made)
    for genuine, secret, headers, body in cases():
        assert made["is_genuine"](secret, headers, body) is genuine


def test_the_javascript_code_verifies() -> None:
    if shutil.which("node") is None:
        pytest.skip("node or npm is not installed")
    asked = [
        [secret, {name.lower(): value for name, value in headers.items()}, body.decode()]
        for _, secret, headers, body in cases()
    ]
    run = (
        f"{code('javascript')}\nfor (const [secret, headers, body] of {json.dumps(asked)})"
        " console.log(isGenuine(secret, headers, Buffer.from(body)));"
    )
    done = subprocess.run(["node", "-"], input=run, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["true" if genuine else "false" for genuine, *_ in cases()]
