"""Dumps of a database by the server's own tool, which logs in as the owner."""

from collections.abc import Sequence

from cell.engines.driver import EngineError, Login
from cell.engines.mysql.servers import ServerInstallation
from cell.layout import Site
from cell.runtime.host import Host
from cell.runtime.tools import ToolCommand

TOOLS = ("mariadb-dump", "mysqldump")
WORDS = (
    # One moment of all tables with transactions, without a lock of theirs.
    *("--no-defaults", "--single-transaction", "--quick"),
    *("--routines", "--triggers", "--events", "--hex-blob", "--default-character-set=utf8mb4"),
    # To ask for these needs a right that owners do not have.
    "--no-tablespaces",
)


CLIENTS = ("mariadb", "mysql")
CLIENT_WORDS = (
    # Nothing but SQL: no command of the client's own, and no file that it could send.
    *("--no-defaults", "--batch", "--binary-mode", "--local-infile=0"),
    *("--default-character-set=utf8mb4", "--max-allowed-packet=1G"),
)


def client_command(host: Host, server: ServerInstallation, site: Site, login: Login) -> ToolCommand:
    """EngineError where the client of the server is not installed."""
    tool = server.tool(*(CLIENTS if server.engine == "mariadb" else CLIENTS[1:]))
    if tool is None:
        raise EngineError(f"the client of {server.version} is not installed on the cell's machine")
    socket = host.view(site).run / site.socket.name
    words = [*CLIENT_WORDS, f"--socket={socket}", f"--user={login.username}", "app"]
    environment = {"MYSQL_PWD": login.password, "HOME": "/nonexistent"}
    return ToolCommand([str(tool), *words], environment, server.mounts)


def source_command(
    server: ServerInstallation, socket: str, databases: Sequence[str], *, named: bool
) -> ToolCommand:
    """Of a server that is no instance's, on a socket that lets everybody in.

    `named`: with the statements that make the databases. EngineError as above.
    """
    tool = server.tool(*TOOLS)
    if tool is None:
        raise EngineError(f"{TOOLS[0]} of {server.version} is not installed on the cell's machine")
    # No library is loaded because the server asks for it.
    words = [*WORDS, "--skip-ssl", "--plugin-dir=/nonexistent", "--max-allowed-packet=1G"]
    words += [f"--socket={socket}", "--user=source", *(["--databases"] if named else [])]
    return ToolCommand([str(tool), *words, "--", *databases], {}, server.mounts)


def command(
    host: Host, server: ServerInstallation, site: Site, login: Login, database: str
) -> ToolCommand:
    """SQL; EngineError where the tool of the server is not installed."""
    tool = server.tool(*(TOOLS if server.engine == "mariadb" else TOOLS[1:]))
    if tool is None:
        raise EngineError(f"{TOOLS[0]} of {server.version} is not installed; use one of your own")
    socket = host.view(site).run / site.socket.name
    words = [*WORDS, f"--socket={socket}", f"--user={login.username}", "--", database]
    return ToolCommand([str(tool), *words], {"MYSQL_PWD": login.password}, server.mounts)
