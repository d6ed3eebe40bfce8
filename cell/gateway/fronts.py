"""The protocols this gateway speaks."""

from cell.gateway.cancels import Cancels
from cell.gateway.protocols.front import Front
from cell.gateway.protocols.https import Https
from cell.gateway.protocols.postgres import Postgres


def fronts(cancels: Cancels) -> dict[str, Front]:
    """By protocol, as in `GatewaySettings.ports`; a port of any other is not listened on."""
    https = Https()
    return {"https": https, "clickhouse_https": https, "postgres": Postgres(cancels)}
