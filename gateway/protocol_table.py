"""The protocols this gateway speaks."""

from gateway.cancels import Cancels
from gateway.protocols.clickhouse import ClickHouse
from gateway.protocols.https import Https
from gateway.protocols.interface import GatewayProtocol
from gateway.protocols.mongodb import MongoDb
from gateway.protocols.mysql import MySql
from gateway.protocols.postgres import Postgres
from gateway.protocols.resp import Resp


def protocols_spoken(cancels: Cancels, mysql_version: str) -> dict[str, GatewayProtocol]:
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
