"""The ASGI app for gunicorn, whose settings are in menagerie.gunicorn_settings."""

from menagerie import logs
from menagerie.control_plane import build_app
from menagerie.settings import load

_SETTINGS = load()
logs.configure(_SETTINGS.log_format, _SETTINGS.log_level, role="api")
app = build_app(_SETTINGS)
