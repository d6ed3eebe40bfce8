"""One server of the benchmark of the whole way, as a process: ours, ours with more, or the twin.

usage: python -m tools.bench.whole_way_server ours|more|twin DATABASE_URL HOME PORT
"""

import copy
import sys
import types
from pathlib import Path
from typing import Any, Final
from unittest import mock

import uvicorn
import yaml

from menagerie import composition, contract, logs
from menagerie.access import AccessLog
from menagerie.control_plane import http_options
from menagerie.settings import Settings
from specserver import Document
from storage.database import Database
from tools.bench import whole_way_twin

OPERATIONS: Final = 162
"""In `more`: as many as the service is to have."""
_METHODS: Final = ("get", "put", "post", "patch", "delete")
_LIKE: Final = "/v1/orgs/{org_id}/instances/{instance_id}"


def _ours(url: str, home: Path, port: int) -> dict[str, Any]:
    chosen: dict[str, Any] = {"home": home, "database_url": url, "port": port}
    settings = Settings(**chosen, rate_limits=False, log_level="error")
    logs.configure(settings.log_format, settings.log_level, role="api")
    services = composition.build_services(settings)
    return {"app": AccessLog(composition.build_app(settings, services)), **http_options(settings)}


def _more(url: str, home: Path, port: int) -> dict[str, Any]:
    """Ours, its document grown to `OPERATIONS` by copies of an operation at paths of their own."""
    from handlers.instances import instances  # noqa: PLC0415 - only this server needs it

    document = Document.load(contract.place(), checked=True).raw
    paths = document["paths"]
    missing = OPERATIONS - sum(method in path for path in paths.values() for method in _METHODS)
    module = types.ModuleType("handlers.benchmark")
    for number in range(missing):
        path = copy.deepcopy({"get": paths[_LIKE]["get"]})
        path["get"]["operationId"] = f"benchmark.get_{number}"
        paths[_LIKE.replace("instances", f"kind-{number}")] = path
        setattr(module, f"get_{number}", instances.get)
    sys.modules["handlers.benchmark"] = module
    grown = home / "openapi.yaml"
    grown.write_text(yaml.safe_dump(document, sort_keys=False, allow_unicode=True))
    with mock.patch.object(contract, "place", return_value=grown):
        return _ours(url, home, port)


def _twin(url: str, _home: Path, _port: int) -> dict[str, Any]:
    return {
        "app": whole_way_twin.build(Database(url)),
        "loop": "uvloop",
        "http": "httptools",
        "ws": "none",
        "access_log": False,
        "server_header": False,
    }


def main(words: list[str]) -> None:
    name, url, home, port = words
    build = {"ours": _ours, "more": _more, "twin": _twin}[name]
    options = build(url, Path(home), int(port))
    app = options.pop("app")
    uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="error", **options)


if __name__ == "__main__":
    main(sys.argv[1:])
