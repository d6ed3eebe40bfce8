"""The protocols this gateway speaks."""

from cell.gateway.cancels import Cancels
from cell.gateway.protocols.clickhouse import ClickHouse
from cell.gateway.protocols.front import Front
from cell.gateway.protocols.https import Https
from cell.gateway.protocols.mongodb import MongoDb
from cell.gateway.protocols.mysql import MySql
from cell.gateway.protocols.postgres import Postgres
from cell.gateway.protocols.resp import Resp


def fronts(cancels: Cancels, mysql_version: str) -> dict[str, Front]:
    """By protocol, as in `GatewaySettings.ports`; a port of any other is not listened on."""
    https = Https()
    return {
        "https": https,
        "clickhouse_https": https,
        "clickhouse": ClickHouse(),
        "mongodb": MongoDb(),
        "mysql": MySql(mysql_version),
        "postgres": Postgres(cancels),
        "resp": Resp(),
    }
