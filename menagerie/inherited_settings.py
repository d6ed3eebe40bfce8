"""The settings that processes of one service inherit from the one that read them."""

import json
import os
import re
from pathlib import Path
from urllib.parse import unquote

from menagerie.settings import Settings

_FILES = re.compile(
    r"([?&](?:sslrootcert|sslcert|sslkey|sslcrl|passfile)=)"
    r"(?!/|%2[Ff]|system\b)([^&#]+)"
)


def environment(settings: Settings) -> dict[str, str]:
    """The settings in force as `MENAGERIE_*` variables, so that each part reads the same ones.

    Wherever it works: no path is relative.
    """
    values = settings.model_dump(mode="json", exclude_defaults=True)
    values |= {"home": str(settings.root), "port": settings.port}
    values |= {f"gateway_{name}_port": port for name, port in settings.gateway_ports.items()}
    if settings.database_url:
        absolute = _absolute_sqlite if settings.on_sqlite else _absolute_files
        values["database_url"] = absolute(settings.database_url)
    if config := os.environ.get("MENAGERIE_CONFIG"):
        values["config"] = str(Path(config).absolute())
    return {
        f"MENAGERIE_{name.upper()}": value if isinstance(value, str) else json.dumps(value)
        for name, value in values.items()
    }


def _absolute_sqlite(sqlite_url: str) -> str:
    dialect, _, path = sqlite_url.partition(":///")
    file, question, options = path.partition("?")
    if not file or file == ":memory:" or file.startswith("file:"):
        return sqlite_url
    return f"{dialect}:///{Path(file).absolute()}{question}{options}"


def _absolute_files(url: str) -> str:
    """The files that libpq's parameters name: as they stand, but for relative ones."""
    return _FILES.sub(lambda found: found[1] + str(Path(unquote(found[2])).absolute()), url)
