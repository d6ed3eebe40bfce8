"""Migrations for generated requests to be about: what the document can only say the looks of."""

from typing import Any

from schemathesis.core.parameters import ParameterLocation
from ulid import ULID

from contract_tests.cell.migrations import migration_calls
from contract_tests.cell.migrations.migration_calls import CONNECTION, UPLOAD
from contract_tests.cell.rig import Rig

# No source is there that a sync would be with: a cutover is always too early.
TOO_EARLY = "migrations.cutover"
NOWHERE = {"uri": "postgresql://user:password@10.0.0.1/name", "ca_pem": None, "tls": "verify"}


class GeneratedMigrations:
    """Of one instance, which has one unfinished at a time."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._instance_id = ""
        self._newest = ""

    def aim(self, case: Any, operation_id: str) -> None:
        if not self._instance_id:
            self._instance_id = self._rig.make(engine="postgres", engine_version="18")
        is_json = case.media_type == "application/json"
        sends = operation_id == "migrations.send_source"
        source = CONNECTION if sends and is_json else UPLOAD
        if sends or not self._newest:
            self._begin_anew(source)
        names = {"instance_id": self._instance_id, "migration_id": self._newest}
        if "token" in case.path_parameters:
            given = (self._rig, self._instance_id, self._newest)
            case.path_parameters["token"] = migration_calls.token(*given)
        else:
            case.path_parameters.update(names)
        if case.meta.is_negative_at(ParameterLocation.BODY):
            return
        if operation_id == "migrations.begin":
            self._begin_anew(UPLOAD)
            case.path_parameters.update(migration_id=self._newest)
            case.body = {"source": UPLOAD, "mode": "copy", "dry_run": False}
        elif sends:
            case.body = dict(NOWHERE) if is_json else b"SELECT 1;"
            if not case.meta.is_negative_at(ParameterLocation.HEADER):
                case.headers.pop("Content-Range", None)

    def _begin_anew(self, source: dict[str, Any]) -> None:
        rig, instance_id = self._rig, self._instance_id
        if self._newest:
            path = migration_calls.path_of(instance_id, self._newest)
            assert rig.act("DELETE", path).status_code == 200
            ended = ("cancelled", "failed", "completed")
            migration_calls.status_is(rig, instance_id, self._newest, *ended)
        self._newest = migration_calls.begun(rig, instance_id, source, migration_id=f"mig_{ULID()}")
