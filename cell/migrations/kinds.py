"""Which migration it is: by the engine of the instance, and by the source."""

from functools import partial

from cell.engines.driver import BeginsWithFile
from cell.engines.duckdb import DuckDB
from cell.engines.mysql.driver import MariaDB
from cell.engines.postgres.driver import PostgreSQL
from cell.engines.resp.driver import RespFamily
from cell.instances import login_checks
from cell.instances.hosted import HostedInstance
from cell.instances.restores import Restores
from cell.instances.verification import Verifier
from cell.migrations.conduit import Conduit
from cell.migrations.errors import MigrationError
from cell.migrations.files import FileMigration, NativeFileMigration
from cell.migrations.mysql.migration import MySQLCopyMigration
from cell.migrations.mysql.sync import MySQLSyncMigration
from cell.migrations.mysql_dumps import MySQLDumpMigration
from cell.migrations.postgres.migration import ConnectionMigration, UploadMigration
from cell.migrations.postgres.sync import SyncMigration
from cell.migrations.postgres.table_files import TableFilesMigration
from cell.migrations.postgres.target import PostgresTarget
from cell.migrations.record import Migration, MigrationRecords
from cell.migrations.redis.copying import RedisCopyMigration
from cell.migrations.redis.sync import RedisSyncMigration
from cell.migrations.source_uri import SourceUri
from cell.migrations.table_files.in_duckdb import DuckDBTableFiles
from cell.migrations.table_files.in_mariadb import MariaDBTableFiles
from cell.migrations.work import MigrationWork
from cell.runtime.host import Host
from cell.settings import CellSettings

Following = SyncMigration | RedisSyncMigration | MySQLSyncMigration
Engine = UploadMigration | ConnectionMigration | SyncMigration | FileMigration | TableFilesMigration
READS_ALL = FileMigration | TableFilesMigration
"""Of a preflight that takes as long as reading all of a file does."""


class MigrationKinds:
    def __init__(
        self,
        settings: CellSettings,
        host: Host,
        verifier: Verifier,
        restores: Restores,
        records: MigrationRecords,
    ) -> None:
        self._settings = settings
        self._host = host
        self._verifier = verifier
        self._restores = restores
        self._records = records

    async def of(self, instance: HostedInstance, record: Migration) -> Engine:
        driver = instance.driver
        work = MigrationWork(self._settings, instance, record, partial(self._records.save, record))
        if record.kind == "upload" and isinstance(driver, BeginsWithFile | MariaDB):
            return self._of_file(work, driver)
        if isinstance(driver, RespFamily | MariaDB):
            return self._of_server(work, driver)
        if not isinstance(driver, PostgreSQL):
            raise MigrationError(f"{driver.engine} takes no migrations")
        target = await self.target(instance, record)
        if record.kind == "upload":
            kind_of_file = TableFilesMigration if record.format == "files" else UploadMigration
            return kind_of_file(work, target)
        kind = SyncMigration if record.mode == "copy_and_sync" else ConnectionMigration
        return kind(work, target, self._host, self._source(record))

    async def target(self, instance: HostedInstance, record: Migration) -> PostgresTarget:
        driver = instance.driver
        assert isinstance(driver, PostgreSQL)
        # The source's code runs in sessions of the tools, and can change the password of theirs.
        await login_checks.restore(instance)
        version = instance.record.spec.engine_version
        return PostgresTarget(
            *(self._host, instance, driver),
            await driver.installation(version, instance.site),
            f"migration_{record.suffix}",
        )

    def _of_file(self, work: MigrationWork, driver: BeginsWithFile | MariaDB) -> FileMigration:
        given = (work, self._verifier, self._restores)
        if work.record.format == "files" and isinstance(driver, DuckDB):
            return DuckDBTableFiles(*given, self._host, driver)
        if isinstance(driver, MariaDB):
            is_files = work.record.format == "files"
            kind = MariaDBTableFiles if is_files else MySQLDumpMigration
            return kind(*given, self._host, driver)
        return NativeFileMigration(*given, driver)

    def _of_server(self, work: MigrationWork, driver: RespFamily | MariaDB) -> FileMigration:
        conduit = Conduit(self._source(work.record), tuple(self._settings.migration_networks))
        given = (work, self._verifier, self._restores)
        syncs = work.record.mode == "copy_and_sync"
        if isinstance(driver, MariaDB):
            of_mysql = MySQLSyncMigration if syncs else MySQLCopyMigration
            return of_mysql(*given, self._host, driver, conduit)
        kind = RedisSyncMigration if syncs else RedisCopyMigration
        return kind(*given, driver, conduit)

    def _source(self, record: Migration) -> SourceUri:
        uri = self._records.source(record)
        if uri is None:
            raise MigrationError("how to connect to the source is not known any more; begin anew")
        return uri
