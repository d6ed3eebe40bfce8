"""A server of S3 on loopback, in a process of its own, as moto keeps one state for each."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

BUCKET = "backups"
_PROGRAM = """
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
server.start()
print("http://{}:{}".format(*server.get_host_and_port()), flush=True)
server._thread.join()
"""


@contextmanager
def bucket_server(prefix: str = "AWS_") -> Iterator[dict[str, str]]:
    """One with a bucket; what the environment says of it, in variables that begin with `prefix`."""
    server = subprocess.Popen([sys.executable, "-c", _PROGRAM], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        url = next(each for each in server.stdout if each.startswith("http")).strip()
        httpx.put(f"{url}/{BUCKET}").raise_for_status()
        yield {
            f"{prefix}ENDPOINT_URL": url,
            f"{prefix}ACCESS_KEY_ID": "test",
            f"{prefix}SECRET_ACCESS_KEY": "test",
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
        }
    finally:
        server.kill()
        server.wait()
