"""How gunicorn runs the API: uvicorn workers (uvloop, httptools), one on SQLite."""

import signal
from typing import Any

from menagerie.unwanted import hide

hide("rich", "trio")

from menagerie.monitoring import folder
from menagerie.processes import end_with
from menagerie.settings import load

_SETTINGS = load()

bind = f"{_SETTINGS.host}:{_SETTINGS.port}"
worker_class = "menagerie.gunicorn_worker.ApiWorker"
# On SQLite one process writes: its lock is what keeps the wait for a write short.
workers = 1 if _SETTINGS.on_sqlite else _SETTINGS.processes
# Long polls and streams keep a connection; uvicorn's loop is what must stay alive.
timeout = 60
graceful_timeout = 15
keepalive = 30
preload_app = False
accesslog = None
proc_name = "menagerie"
control_socket_disable = True


def post_fork(_master: Any, worker: Any) -> None:
    """Without its master a worker would serve on, holding the port, and nobody would tend it."""
    # Until the worker has its own handlers, the master's would only note the signal.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with(worker.ppid)


def child_exit(_master: Any, worker: Any) -> None:
    """What the worker had open counts no more."""
    if folder.is_shared():
        from menagerie.monitoring.kept_figures import process_ended  # noqa: PLC0415 -- rarely needed

        process_ended(worker.pid)


def on_exit(_master: Any) -> None:
    folder.remove()
