"""How gunicorn runs the API: uvicorn workers (uvloop, httptools), one on SQLite."""

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
