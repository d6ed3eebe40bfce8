"""Owns the proof that the example of docs/specserver.md is whole and does what is said of it."""

import json
import os
import re
import subprocess
import sys
from inspect import signature
from pathlib import Path

import pytest

from specserver import App

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "specserver.md"

# Asks what the guide's console shows, and prints the bodies.
CLIENT = """
import asyncio, httpx
from app import app

async def main():
    headers = {"authorization": "Bearer a-secret-key"}
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://x", headers=headers) as c:
        for body in ({"title": "Emma", "year": 1815}, {"year": 3, "color": "red"}):
            print((await c.post("/books", json=body)).text)
        print((await c.get("/books?limit=5")).text)
        print((await c.get("/books/1")).text)
        print((await c.get("/books/2")).json()["detail"])
        print((await c.get("/books", headers={"authorization": "Bearer other"})).status_code)

asyncio.run(main())
"""


@pytest.mark.nightly
def test_the_example_runs_and_answers_as_shown(tmp_path: Path) -> None:
    text = GUIDE.read_text(encoding="utf-8")
    files = re.findall(r"^```(?:yaml|python) (\S+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert [name for name, _ in files] == ["openapi.yaml", "shelf/books.py", "app.py"]
    for name, content in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", CLIENT],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.stderr == ""
    made, refused, listed, got, missing, status = done.stdout.splitlines()
    shown = re.search(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert shown is not None
    answers = re.findall(r"^(\{.*?\})\n(?=\n|\Z)", shown[1], re.MULTILINE | re.DOTALL)
    expected = [json.loads(answer) for answer in answers]
    assert json.loads(made) == expected[0]
    assert json.loads(refused) | {"request_id": ""} == expected[1] | {"request_id": ""}
    assert json.loads(listed) == [expected[0]]
    assert json.loads(got) == expected[0]
    assert (missing, status) == ("there is no book 2", "401")


def test_every_option_of_app_is_in_the_guide() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    options = [name for name in signature(App.__init__).parameters if name != "self"]
    assert [name for name in options if f"`{name}`" not in text] == []
