"""Where `serve` keeps what it knows in PostgreSQL, and what it says when it cannot."""

from collections.abc import Callable
from pathlib import Path

import pytest

from contract_tests.databases import Databases
from contract_tests.end_to_end.installation import Installation, order

NOBODY = {"MENAGERIE_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none"}


@pytest.mark.parametrize("start", ["first", "second"])
def test_a_database_that_cannot_be_reached_is_named(start: str, tmp_path: Path) -> None:
    installation = Installation(tmp_path / "home")
    try:
        if start == "second":
            installation.start()
            installation.stop()
        installation.environment |= NOBODY
        with pytest.raises(AssertionError, match="ended before it was ready"):
            installation.start()
        assert "the database cannot be reached: " in installation.log
        assert "look at the setting database_url" in installation.log
        assert "Traceback" not in installation.log
        assert "not ready in time" not in installation.log
    finally:
        installation.destroy()


def test_serve_does_the_work_on_postgresql_too(
    databases: Databases, fresh: Callable[..., Installation]
) -> None:
    installation = fresh(MENAGERIE_DATABASE_URL=databases.empty("postgresql"))
    installation.start()
    assert order(installation, name="worked", size="f0")["status"] == "running"
