"""One server of the benchmark of the whole way, as a process: ours, a part of it, or the twin.

usage: python -m tools.bench.whole_way_server ours|fewer|twin DATABASE_URL HOME PORT
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from unittest import mock

import uvicorn
import yaml

from menagerie import composition, contract, logs
from menagerie.access import AccessLog
from menagerie.control_plane import http_options
from menagerie.processes import keep_what_loads, loaded
from menagerie.settings import Settings
from specserver import Document
from storage.database import Database

OPERATIONS: Final = 64
"""In `fewer`."""
MEASURED: Final = (
    "/v1/orgs/{org_id}/instances/{instance_id}",
    "/v1/orgs/{org_id}/instances",
    "/v1/orgs/{org_id}/projects/{project_id}/instances",
)
_METHODS: Final = ("get", "put", "post", "patch", "delete")


def _ours(url: str, home: Path, port: int) -> dict[str, Any]:
    chosen: dict[str, Any] = {"home": home, "database_url": url, "port": port}
    settings = Settings(**chosen, rate_limits=False, log_level="error")
    logs.configure(settings.log_format, settings.log_level, role="api")
    services = composition.build_services(settings)
    return {"app": AccessLog(composition.build_app(settings, services)), **http_options(settings)}


def _fewer(url: str, home: Path, port: int) -> dict[str, Any]:
    """Ours, of whose document the paths beyond the first `OPERATIONS` operations are taken away."""
    document = Document.load(contract.place(), checked=True).raw
    document["paths"] = dict(_kept(document["paths"]))
    cut = home / "openapi.yaml"
    cut.write_text(yaml.safe_dump(document, sort_keys=False, allow_unicode=True))
    with mock.patch.object(contract, "place", return_value=cut):
        return _ours(url, home, port)


def _kept(paths: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """What is measured, and as much of the rest as there is room for."""
    left = OPERATIONS - sum(_operations(paths[path]) for path in MEASURED)
    for path, operations in paths.items():
        number = 0 if path in MEASURED else _operations(operations)
        if number <= left:
            left -= number
            yield path, operations


def _operations(path: dict[str, Any]) -> int:
    return sum(method in path for method in _METHODS)


def _twin(url: str, _home: Path, _port: int) -> dict[str, Any]:
    # It brings FastAPI along, whose memory is not to be counted as ours.
    from tools.bench import whole_way_twin  # noqa: PLC0415

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
    build = {"ours": _ours, "fewer": _fewer, "twin": _twin}[name]
    # As `serve` starts the API: what was loaded is never looked through for garbage. Twin alike.
    keep_what_loads()
    options = build(url, Path(home), int(port))
    loaded()
    app = options.pop("app")
    uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="error", **options)


if __name__ == "__main__":
    main(sys.argv[1:])
