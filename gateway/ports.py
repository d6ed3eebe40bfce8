"""The ports clients of each protocol find the gateway on."""

from typing import Final

# Where nothing else is set: none of them needs privileges.
DEFAULT: Final[dict[str, int]] = {
    "https": 8443,
    "postgres": 15432,
    "mysql": 13306,
    "resp": 16379,
    "mongodb": 17017,
    "clickhouse_https": 18443,
    "clickhouse": 19440,
}
