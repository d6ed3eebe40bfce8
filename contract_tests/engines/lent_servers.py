"""PostgreSQL servers that tests have one after the other, each as it was when it was new."""

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest
from psycopg import sql

from cell.engines.driver import EngineError, Login
from cell.engines.postgres import leftovers
from contract_tests.engines.postgres_sessions import Connection, session, superuser

if TYPE_CHECKING:
    # It has the fixtures of what is here.
    from contract_tests.engines.conftest import Subject

Given = tuple[str, str | None]
Rows = list[tuple[Any, ...]]
# What databases share, and what can be said of one that no test has an object in.
SHARED: Final = (
    """SELECT rolname, rolsuper, rolinherit, rolcreaterole, rolcreatedb, rolcanlogin,
    rolreplication, rolconnlimit, rolvaliduntil::text, rolbypassrls FROM pg_roles ORDER BY oid""",
    """SELECT datname, datdba, encoding, datcollate, datistemplate, datallowconn, datconnlimit,
    dattablespace, (SELECT array_agg(a::text ORDER BY a::text) FROM unnest(datacl) a)
    FROM pg_database ORDER BY datname""",
    """SELECT d.datname, setrole, setconfig FROM pg_db_role_setting
    LEFT JOIN pg_database d ON d.oid = setdatabase ORDER BY 1, 2""",
    """SELECT roleid, member, grantor, admin_option FROM pg_auth_members ORDER BY 1, 2, 3""",
    """SELECT d.datname, classid, refobjid, deptype, count(*) FROM pg_shdepend
    LEFT JOIN pg_database d ON d.oid = dbid GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4""",
    "SELECT classoid, description FROM pg_shdescription ORDER BY 1, 2",
    "SELECT parname, paracl::text FROM pg_parameter_acl ORDER BY 1",
    "SELECT spcname FROM pg_tablespace ORDER BY 1",
    "SELECT name, setting FROM pg_settings WHERE source = 'configuration file' ORDER BY 1",
)
INSIDE: Final = """
SELECT (SELECT count(*) FROM pg_class WHERE relpersistence <> 't'),
    (SELECT md5(string_agg(p::text, ';' ORDER BY oid)) FROM pg_proc p),
    (SELECT md5(string_agg(n::text, ';' ORDER BY oid)) FROM pg_namespace n
        WHERE nspname !~ '^pg_(toast_)?temp'),
    (SELECT count(*) FROM pg_type), (SELECT count(*) FROM pg_operator),
    (SELECT count(*) FROM pg_cast), (SELECT count(*) FROM pg_default_acl),
    (SELECT count(*) FROM pg_event_trigger), (SELECT count(*) FROM pg_publication),
    (SELECT count(*) FROM pg_extension), (SELECT count(*) FROM pg_largeobject_metadata)
"""
END_SESSIONS: Final = """
SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
WHERE datname IS NOT NULL AND pid <> pg_backend_pid()
"""
DATABASES: Final = "SELECT datname FROM pg_database WHERE datname NOT IN {}"
ROLES: Final = "SELECT rolname FROM pg_roles WHERE oid >= 16384 AND rolname <> 'app'"
KEPT: Final = ("postgres", "template0", "template1")


@dataclass
class _Lent:
    subject: "Subject"
    login: Login
    new: Rows
    # The file whose tests share it, which leave it as it is but for objects of their own.
    shared_by: Path | None = None

    def is_new_again(self) -> bool:
        """False where something stayed of what a test did: nobody has that server again."""
        subject = self.subject
        if subject.process is None or not subject.process.alive:
            return False
        subject.login, subject.generation = self.login, 1
        try:
            with session(subject, superuser(subject), "postgres") as connection:
                _clear(connection)
            with pytest.MonkeyPatch.context() as patch:
                # Half of the work: what it would find is seen by the comparison.
                patch.setattr(leftovers, "clear", _found_nothing)
                subject.accept(self.login)
            return subject.works(self.login) and _described(subject) == self.new
        except (psycopg.Error, UnicodeError, EngineError):
            return False


class Lender:
    """Has one server of each version, and makes another where the last was not given back new."""

    def __init__(self, provisioned: Callable[[Given], AbstractContextManager["Subject"]]) -> None:
        self._provisioned = provisioned
        self._lent: dict[Given, tuple[_Lent, contextlib.ExitStack]] = {}

    def lend(self, given: Given, shared_by: Path | None = None) -> "Subject":
        """A new one; or where tests of a file share it, what those before have left."""
        found = self._lent.get(given)
        if found is not None and shared_by is not None and found[0].shared_by == shared_by:
            return found[0].subject
        if found is not None and not found[0].is_new_again():
            del self._lent[given]
            found[1].close()
        if given not in self._lent:
            self._make(given)
        lent, _ = self._lent[given]
        lent.shared_by = shared_by
        return lent.subject

    def close(self) -> None:
        for _, stack in self._lent.values():
            stack.close()

    def _make(self, given: Given) -> None:
        with contextlib.ExitStack() as stack:
            subject = stack.enter_context(self._provisioned(given))
            subject.start()
            lent = _Lent(subject, subject.login, _described(subject))
            self._lent[given] = lent, stack.pop_all()


async def _found_nothing(*_: object) -> None: ...


def _clear(connection: Connection) -> None:
    """The driver makes the owner's database anew when it is told of logins."""
    connection.execute(END_SESSIONS)
    for (name,) in connection.execute(DATABASES.format(KEPT).encode()).fetchall():
        drop = sql.SQL("DROP DATABASE {} WITH (FORCE)")
        connection.execute(drop.format(sql.Identifier(name)))
    connection.execute("ALTER ROLE app RESET ALL")
    if roles := [sql.Identifier(name) for (name,) in connection.execute(ROLES).fetchall()]:
        named = sql.SQL(", ").join(roles)
        connection.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(named))
        connection.execute(sql.SQL("DROP ROLE {}").format(named))


def _described(subject: "Subject") -> Rows:
    found: Rows = []
    for database in ("postgres", "template1", "app"):
        with session(subject, superuser(subject), database) as connection:
            found += connection.execute(INSIDE.encode()).fetchall()
            for question in SHARED if database == "postgres" else ():
                found += connection.execute(question.encode()).fetchall()
    return found
