"""Who may log in, and with which rights: statements that hold hashes of passwords and no more.

The administrator has a password like everybody: the gateway runs as the cell's own user, so
a login by the user of the operating system would let every client be the administrator.
"""

import hashlib
from collections.abc import Sequence

ADMINISTRATOR = "menagerie"
ADMINISTRATOR_ACCOUNT = "menagerie@localhost"
TENANT = "app"
TENANT_ACCOUNT = "app@'%'"
DATABASE = "app"


def native_hash(password: str) -> str:
    """As mysql_native_password keeps it. Of 256 random bits, it tells nothing."""
    inner = hashlib.sha1(password.encode(), usedforsecurity=False).digest()
    return "*" + hashlib.sha1(inner, usedforsecurity=False).hexdigest().upper()


# --- MariaDB: an account may have any number of ways to prove itself, one of which suffices.


def mariadb_tenant(hashes: Sequence[str]) -> list[str]:
    """Newest first, as most clients come with it; each further one costs a round trip."""
    ways = " OR ".join(f"mysql_native_password USING '{each}'" for each in hashes)
    if not hashes:
        return [f"ALTER USER {TENANT_ACCOUNT} ACCOUNT LOCK"]
    return [f"ALTER USER {TENANT_ACCOUNT} IDENTIFIED VIA {ways} ACCOUNT UNLOCK"]


def mariadb_all(administrator: str, hashes: Sequence[str]) -> list[str]:
    """Everything anew at each start, whatever the data came from."""
    return [
        (
            f"CREATE OR REPLACE USER {ADMINISTRATOR_ACCOUNT}"
            f" IDENTIFIED VIA mysql_native_password USING '{administrator}'"
        ),
        f"GRANT ALL PRIVILEGES ON *.* TO {ADMINISTRATOR_ACCOUNT} WITH GRANT OPTION",
        f"CREATE OR REPLACE USER {TENANT_ACCOUNT} ACCOUNT LOCK",
        # Every database there is or will be, but not the server's own: the more exact entry
        # counts, and this one gives nothing that could be used without a further right.
        f"GRANT ALL PRIVILEGES ON `%`.* TO {TENANT_ACCOUNT}",
        f"GRANT SHOW VIEW ON mysql.* TO {TENANT_ACCOUNT}",
        *mariadb_tenant(hashes),
        "DROP USER IF EXISTS root@localhost, root@'127.0.0.1', root@'::1'",
    ]


# --- MySQL: one further password, which is kept beside the account's attributes. `RETAIN CURRENT
# PASSWORD` writes the same, but takes the password itself, and a site keeps only hashes.

MYSQL_RIGHTS = (
    "SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, REFERENCES, INDEX, ALTER,"
    " CREATE TEMPORARY TABLES, LOCK TABLES, EXECUTE, CREATE VIEW, SHOW VIEW,"
    " CREATE ROUTINE, ALTER ROUTINE, EVENT, TRIGGER"
)
_ROW = "WHERE User = 'app' AND Host = '%'"
_ATTRIBUTES = "COALESCE(User_attributes, JSON_OBJECT())"


def mysql_tenant(hashes: Sequence[str]) -> list[str]:
    """The newest two: the server keeps no more."""
    if not hashes:
        return [f"ALTER USER {TENANT_ACCOUNT} ACCOUNT LOCK"]
    newest, *older = hashes
    changed = f"JSON_REMOVE({_ATTRIBUTES}, '$.additional_password')"
    if older:
        changed = f"JSON_SET({_ATTRIBUTES}, '$.additional_password', '{older[0]}')"
    return [
        (
            f"ALTER USER {TENANT_ACCOUNT} IDENTIFIED WITH mysql_native_password AS '{newest}'"
            " ACCOUNT UNLOCK"
        ),
        f"UPDATE mysql.user SET User_attributes = {changed} {_ROW}",  # noqa: S608 - hexadecimal
        "FLUSH PRIVILEGES",
    ]


def mysql_all(administrator: str, hashes: Sequence[str]) -> list[str]:
    return [
        f"CREATE USER IF NOT EXISTS {ADMINISTRATOR_ACCOUNT}",
        (
            f"ALTER USER {ADMINISTRATOR_ACCOUNT}"
            f" IDENTIFIED WITH mysql_native_password AS '{administrator}'"
        ),
        f"GRANT ALL PRIVILEGES ON *.* TO {ADMINISTRATOR_ACCOUNT} WITH GRANT OPTION",
        f"DROP USER IF EXISTS {TENANT_ACCOUNT}",
        f"CREATE USER {TENANT_ACCOUNT} ACCOUNT LOCK",
        f"GRANT {MYSQL_RIGHTS} ON *.* TO {TENANT_ACCOUNT}",
        f"REVOKE ALL ON mysql.* FROM {TENANT_ACCOUNT}",
        *mysql_tenant(hashes),
        "DROP USER IF EXISTS root@localhost",
    ]
