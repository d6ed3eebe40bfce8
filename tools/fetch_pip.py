"""Fetch pip, pinned and checked, for a Python that came without: Debian's is one.

usage: python tools/fetch_pip.py FOLDER     prints the path of the wheel

Needs nothing but the standard library. The index is PIP_INDEX_URL's, or PyPI.
"""

import hashlib
import json
import os
import ssl
import sys
import urllib.parse
import urllib.request
from pathlib import Path

WHEEL = "pip-26.3-py3-none-any.whl"
SHA256 = "f3b60b20ffaadd4415ed7957212a38ac63fa4c5fa375bd0f4a797777940fad13"
INDEX = "https://pypi.org/simple"
TIMEOUT_S = 60


def main(folder: str) -> int:
    """Write the wheel into the folder; what is not the pinned one is refused."""
    index = (os.environ.get("PIP_INDEX_URL") or INDEX).rstrip("/")
    page = f"{index}/pip/"
    listed = json.loads(_get(page, "application/vnd.pypi.simple.v1+json"))
    found = [each["url"] for each in listed["files"] if each["filename"] == WHEEL]
    if not found:
        print(f"{page} does not have {WHEEL}", file=sys.stderr)
        return 1
    content = _get(urllib.parse.urljoin(page, found[0]), "*/*")
    if hashlib.sha256(content).hexdigest() != SHA256:
        print(f"{found[0]} does not have the pinned SHA-256", file=sys.stderr)
        return 1
    wheel = Path(folder) / WHEEL
    wheel.write_bytes(content)
    print(wheel)
    return 0


def _get(url: str, accept: str) -> bytes:
    trusted = ssl.create_default_context(cafile=os.environ.get("PIP_CERT"))
    request = urllib.request.Request(url, headers={"Accept": accept})  # noqa: S310 - what is fetched is checked
    with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=trusted) as answer:  # noqa: S310 - as above
        return bytes(answer.read())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
