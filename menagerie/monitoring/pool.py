"""How many connections to the database this process uses."""

from typing import Any, Final

from sqlalchemy import event

from specserver.instruments import Level
from storage.database import Database

IN_USE: Final = Level(
    "menagerie_database_connections_in_use",
    "Connections to the database that requests and workers use now.",
)


def watch(database: Database) -> None:
    event.listen(database.engine, "checkout", _taken)
    event.listen(database.engine, "checkin", _given_back)


def _taken(*_about: Any) -> None:
    IN_USE.change(1)


def _given_back(*_about: Any) -> None:
    IN_USE.change(-1)
