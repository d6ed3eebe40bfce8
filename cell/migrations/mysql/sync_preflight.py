"""What keeps a source from being followed, found before anything is changed."""

from collections.abc import Iterator

from cell.migrations.mysql.facts import MySQLFacts, MySQLLog
from cell.migrations.report import PreflightFinding, some

Findings = Iterator[PreflightFinding]
SINCE = (10, 2)
DAY_S = 86_400
ON = "ON"
FOLLOWED = "innodb"
RIGHT = "REPLICATION SLAVE"
# By variable: what it must be, what is wrong otherwise, and what it is where a server has none.
WANTED = {
    "binlog_format": ("ROW", "logs statements instead of what became of rows", "STATEMENT"),
    "binlog_row_image": ("FULL", "does not log whole rows", "FULL"),
    "log_bin_compress": ("OFF", "compresses its binary log, which is not followed", "OFF"),
}


def findings(facts: MySQLFacts, log: MySQLLog | None, database: str) -> Findings:
    """Nothing of a source that is only copied."""
    if log is None:
        return
    if not facts.is_mariadb or facts.number < SINCE:
        since = ".".join(map(str, SINCE))
        yield PreflightFinding(
            "blocking",
            "no_sync",
            f"only MariaDB {since} and newer can be followed, and the source is {facts.version}",
            "stop writing to it, and migrate with the mode copy",
        )
        return
    if not database:
        yield PreflightFinding(
            "blocking",
            "no_database",
            "only one database can be followed, which becomes the instance's database app",
            "name it in the URI",
        )
    yield from _of_log(log)
    yield from _of_tables(facts, log)
    if not facts.grants.has_everywhere(RIGHT):
        yield PreflightFinding(
            "blocking",
            "missing_right",
            f"the user of the source does not have the right {RIGHT}: it cannot read the changes",
            f"GRANT {RIGHT} ON *.* TO the user of the source",
        )


def _of_log(log: MySQLLog) -> Findings:
    if log.values.get("log_bin") != ON:
        yield PreflightFinding(
            "blocking",
            "no_binary_log",
            "the source has no binary log, in which its changes would be",
            "set log_bin and a server_id in its configuration, and start it anew",
        )
        return
    for name, (wanted, what, usual) in WANTED.items():
        if (value := log.values.get(name, usual)) != wanted:
            yield PreflightFinding(
                "blocking",
                name,
                f"the source {what}: {name} is {value}",
                f"SET GLOBAL {name} = {wanted}, and have its sessions connect anew",
            )
    if log.values.get("gtid_slave_pos") and log.values.get("log_slave_updates") != ON:
        yield PreflightFinding(
            "warning",
            "not_logged",
            "the source is or was a replica, and does not log what it replicates",
            "follow the primary, or set log_slave_updates at the source, and start it anew",
        )
    kept_s = _number(log, "binlog_expire_logs_seconds") or DAY_S * _number(log, "expire_logs_days")
    if 0 < kept_s < DAY_S:
        yield PreflightFinding(
            "warning",
            "log_expires",
            f"the source keeps its binary log for {kept_s:.0f} s; a sync that is cut off for longer"
            " has to begin anew",
            f"SET GLOBAL binlog_expire_logs_seconds = {7 * DAY_S}",
        )


def _of_tables(facts: MySQLFacts, log: MySQLLog) -> Findings:
    without = [
        each.shown for each in facts.rows if (each.database, each.name) not in facts.with_key
    ]
    others = [each.shown for each in facts.rows if each.engine.lower() != FOLLOWED]
    versioned = [each.shown for each in facts.tables if each.type == "SYSTEM VERSIONED"]
    for names, what, remedy in (
        (without, "tables without a primary key", "give them one"),
        (others, "tables without transactions", "give them the engine InnoDB"),
        (versioned, "system-versioned tables", "migrate with the mode copy"),
        (log.compressed, "tables with compressed columns", "store the columns uncompressed"),
    ):
        if names:
            told = f"{what} cannot be followed: {some(names)}"
            yield PreflightFinding("blocking", "not_followed", told, remedy)


def _number(log: MySQLLog, name: str) -> float:
    try:
        return float(log.values.get(name, "0"))
    except ValueError:
        return 0.0
