"""The code of docs/webhooks.md accepts what is signed, and nothing that was changed."""

import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from clients import webhook_signing

GUIDE = (Path(__file__).parents[2] / "docs" / "webhooks.md").read_text()
BODY = '{"id":"evt_1","data":{"name":"ü"}}'.encode()
DONE_S = 100
Delivery = tuple[bool, str, dict[str, str], bytes]


def code(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.+?)^```$", GUIDE, re.MULTILINE | re.DOTALL)


def deliveries() -> Iterator[Delivery]:
    """Whether it is genuine, the secret, the headers and the body."""
    former, newer = webhook_signing.new_secret(), webhook_signing.new_secret()
    now = int(time.time())

    def signed(at: int = now, *secrets: str) -> dict[str, str]:
        return webhook_signing.headers("evt_1", "a.b.v1", BODY, at, secrets or (former,))

    yield True, former, signed(), BODY
    yield True, former, signed(now - 200), BODY
    yield True, former, signed(now, newer, former), BODY
    yield True, newer, signed(now, newer, former), BODY
    yield False, newer, signed(), BODY
    yield False, webhook_signing.new_secret(), signed(now, newer, former), BODY
    for place in (0, len(BODY) - 3):
        yield False, former, signed(), BODY[:place] + bytes([BODY[place] ^ 1]) + BODY[place + 1 :]
    yield False, former, signed(), BODY + b" "
    yield False, former, signed(now - 400), BODY
    yield False, former, signed(now + 400), BODY
    for timestamp in (str(now - 1), "", "soon", f"{now}x", "-1", "9" * 5000, "²"):
        yield False, former, signed() | dict.fromkeys(TIMESTAMPS, timestamp), BODY
    for signature in ("", "v1", "v1=", "v1,", ",", "é"):
        yield False, former, signed() | dict.fromkeys(SIGNATURES, signature), BODY
    for names in (TIMESTAMPS, SIGNATURES):
        yield False, former, {k: v for k, v in signed().items() if k not in names}, BODY
    yield False, former, {}, BODY


TIMESTAMPS = ("SVC-Timestamp", "webhook-timestamp")
SIGNATURES = ("SVC-Signature", "webhook-signature")


def test_the_delivery_that_is_shown_is_signed_with_the_secret_that_is_shown() -> None:
    found = re.search(r"^    POST .+\n((?:    .+\n)+)\n    (.+)\n", GUIDE, re.MULTILINE)
    secret = re.search(r"signed with the secret `(whsec_\S+)`", GUIDE)
    assert found is not None
    assert secret is not None
    shown = dict(line.strip().split(": ", 1) for line in found[1].splitlines())
    event = json.loads(found[2])
    at = int(shown["SVC-Timestamp"])
    signed = webhook_signing.headers(event["id"], event["type"], found[2].encode(), at, [secret[1]])
    assert shown.items() - signed.items() == {("Host", "example.com")}
    assert {*TIMESTAMPS, *SIGNATURES, "SVC-Event-Id", "SVC-Event-Type"} <= shown.keys()


@pytest.mark.parametrize("place", [0, 1], ids=["hmac", "standardwebhooks"])
def test_python_decides_rightly(place: int) -> None:
    made: dict[str, Any] = {}
    exec(code("python")[place], made)
    decided: Callable[[str, Mapping[str, str], bytes], bool] = made["is_genuine"]
    for genuine, secret, headers, body in deliveries():
        assert decided(secret, headers, body) is genuine, (headers, body)


def run(folder: Path, program: str, *words: str, text: str) -> list[bool]:
    """What a program in another language decides of the deliveries that it reads as JSON."""
    (folder / words[-1]).write_text(text)
    told = [[secret, headers, body.decode("latin-1")] for _, secret, headers, body in deliveries()]
    done = subprocess.run(
        [program, *words],
        cwd=folder,
        input=json.dumps(told),
        capture_output=True,
        text=True,
        timeout=DONE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [each == "true" for each in done.stdout.split()]


def genuine() -> list[bool]:
    return [one[0] for one in deliveries()]


JAVASCRIPT = """
for (const [secret, given, body] of JSON.parse(require("node:fs").readFileSync(0))) {
  const lower = Object.entries(given).map(([name, value]) => [name.toLowerCase(), value]);
  console.log(isGenuine(secret, Object.fromEntries(lower), Buffer.from(body, "latin1")));
}
"""


@pytest.mark.nightly
def test_javascript_decides_rightly(tmp_path: Path) -> None:
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    (text,) = code("javascript")
    assert run(tmp_path, "node", "guide.cjs", text=text + JAVASCRIPT) == genuine()


PHP = """
foreach (json_decode(file_get_contents('php://stdin')) as [$secret, $headers, $body]) {
    $bytes = iconv('UTF-8', 'ISO-8859-1', $body);
    echo is_genuine($secret, (array) $headers, $bytes) ? "true\\n" : "false\\n";
}
"""


@pytest.mark.nightly
def test_php_decides_rightly(tmp_path: Path) -> None:
    if shutil.which("php") is None:
        pytest.skip("php is not installed")
    (text,) = code("php")
    assert run(tmp_path, "php", "guide.php", text=f"<?php\n{text}{PHP}") == genuine()


GO = """
func main() {
	var told [][]any
	if err := json.NewDecoder(os.Stdin).Decode(&told); err != nil {
		panic(err)
	}
	for _, one := range told {
		header := http.Header{}
		for name, value := range one[1].(map[string]any) {
			header.Set(name, value.(string))
		}
		var body []byte
		for _, each := range one[2].(string) {
			body = append(body, byte(each))
		}
		fmt.Println(isGenuine(one[0].(string), header, body))
	}
}
"""


@pytest.mark.nightly
def test_go_decides_rightly(tmp_path: Path) -> None:
    if shutil.which("go") is None:
        pytest.skip("go is not installed")
    (text,) = code("go")
    imports = 'package main\n\nimport (\n\t"encoding/json"\n\t"fmt"\n\t"os"\n)\n'
    assert run(tmp_path, "go", "run", "guide.go", text=f"{imports}\n{text}{GO}") == genuine()
