"""A folder with modules that somebody else has put there, for services to be started in."""

from pathlib import Path

# Whose names a service imports, early and late.
NAMES = ("structlog", "orjson", "uvicorn", "gunicorn", "sqlalchemy", "typer", "typing")
MODULE = """
import pathlib
pathlib.Path({!r}).write_text(__name__)
"""


class PlantedModules:
    """None of them may be run: `run` tells which was."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._told = path / "told"
        path.mkdir()
        for name in NAMES:
            (path / f"{name}.py").write_text(MODULE.format(str(self._told)))

    @property
    def run(self) -> str:
        return self._told.read_text() if self._told.exists() else ""
