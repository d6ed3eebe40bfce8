"""Owns the service in this process and on a port, which is what its clients can speak to."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn

from contract_tests.service_process import until
from instance_services.search.callers import MasterKeys
from instance_services.search.search_app import make_app


@contextmanager
def on_port(home: Path, master: str, **options: Any) -> Iterator[str]:
    """Its address; `options` are those of the app."""
    (home / "keys.json").write_text(json.dumps([master]))
    (home / "data").mkdir()
    app = make_app(home / "data", MasterKeys(home / "keys.json"), **options)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, lifespan="on"))
    thread = threading.Thread(target=server.run)
    thread.start()
    until(lambda: server.started, "the server to start")
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)
