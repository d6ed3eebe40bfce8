"""What the control plane relies on in a cell: the real one and the tests' fake keep the same."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from contract_tests.cell import rig
from contract_tests.cell.rig import LARGER, new_id
from contract_tests.end_to_end.either_cell import KINDS, of_kind
from control.cells.client import CellClient, CellFailed, CellRefused, InstanceUnknown
from control.work import LeaseLost


@pytest.fixture(scope="module", params=KINDS)
def cell(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CellClient]:
    with of_kind(request.param, tmp_path_factory.mktemp("contract")) as made:
        yield made


@pytest.fixture(scope="module")
def spec(cell: CellClient) -> Callable[..., dict[str, Any]]:
    """Of the engine that starts soonest, as these ask nothing of the engine; the fake has one."""
    engines = {each["engine"]: each["versions"] for each in cell.describe()["engines"]}
    name = next(each for each in ("valkey", "redis", "duckdb") if engines.get(each))
    return partial(rig.spec, engine=name, engine_version=engines[name][0])


@pytest.fixture
def instance(cell: CellClient, spec: Callable[..., dict[str, Any]]) -> str:
    instance_id = new_id()
    cell.put(instance_id, spec(instance_id), key=f"put-{instance_id}:put", lease=1)
    return instance_id


def test_a_cell_says_what_it_is(cell: CellClient) -> None:
    told = cell.describe()
    assert told["region"] == "local"
    assert told["instance_domain"] == "localhost"
    assert told["public_host"] == "cell.local.localhost"
    assert set(told["ca"]) == {"root_pem", "chain_pem"}
    assert {"https", "postgres", "mysql", "resp"} <= set(told["ports"])
    duckdb = next(one for one in told["engines"] if one["engine"] == "duckdb")
    assert duckdb["versions"] == ["1.5"]
    assert duckdb["source"]


def test_an_instance_begins_with_a_snapshot_of_another(
    cell: CellClient, instance: str, spec: Callable[..., dict[str, Any]]
) -> None:
    copy = cell.snapshot(instance, "branch", key=f"copy-{instance}:copy", lease=1)["snapshot_id"]
    branch = new_id()
    begun = spec(branch, source_snapshot=f"{instance}/{copy}")
    made = cell.put(branch, begun, key=f"put-{branch}:put", lease=1)
    assert (made["instance_id"], made["status"]) == (branch, "running")
    other = new_id()
    missing = spec(other, source_snapshot=f"{instance}/snap_{other.removeprefix('inst_')}")
    with pytest.raises(CellRefused, match="no snapshot"):
        cell.put(other, missing, key=f"put-{other}:put", lease=1)
    assert cell.observe(other) is None


def back_up(cell: CellClient, instance: str) -> str:
    """The id of a new backup."""
    backup_id = new_id().replace("inst_", "bkp_")
    cell.back_up(instance, backup_id, "manual", key=f"copy-{backup_id}:copy", lease=1)
    return backup_id


def test_a_backup_is_made_once_and_tells_what_it_is(cell: CellClient, instance: str) -> None:
    backup_id = new_id().replace("inst_", "bkp_")
    made, again = (
        cell.back_up(instance, backup_id, "manual", key=f"{name}-{backup_id}:copy", lease=1)
        for name in ("first", "second")
    )
    assert made == again
    assert (made["backup_id"], made["kind"]) == (backup_id, "manual")
    assert made["verification"]["method"] in {"restored", "checksums"}
    assert {"engine_version", "size_bytes", "stored_bytes", "sha256", "extensions"} <= set(made)
    assert made["started_at"] <= made["completed_at"]


def test_an_instance_begins_with_a_backup_of_another(
    cell: CellClient, instance: str, spec: Callable[..., dict[str, Any]]
) -> None:
    backup_id, restored, other = back_up(cell, instance), new_id(), new_id()
    begun = spec(restored, source_backup=f"{instance}/{backup_id}")
    made = cell.put(restored, begun, key=f"put-{restored}:put", lease=1)
    assert (made["instance_id"], made["status"]) == (restored, "running")
    assert made["credentials"]["generation"] == 1
    missing = spec(other, source_backup=f"{instance}/bkp_{other.removeprefix('inst_')}")
    with pytest.raises((CellRefused, CellFailed), match="there is no backup"):
        cell.put(other, missing, key=f"put-{other}:put", lease=1)


def test_an_instance_is_restored_in_place(cell: CellClient, instance: str) -> None:
    backup_id = back_up(cell, instance)
    restored = cell.restore(instance, backup_id, key=f"restore-{instance}:restore", lease=1)
    assert (restored["instance_id"], restored["status"]) == (instance, "running")
    missing = new_id().replace("inst_", "bkp_")
    with pytest.raises(CellRefused):
        cell.restore(instance, missing, key=f"restore-{missing}:restore", lease=1)


@pytest.mark.nightly
def test_an_engine_without_wal_is_restored_to_no_moment(
    cell: CellClient, spec: Callable[..., dict[str, Any]]
) -> None:
    instance = new_id()
    without = spec(instance, engine="duckdb", engine_version="1.5")
    cell.put(instance, without, key=f"put-{instance}:put", lease=1)
    told = cell.set_archiving(instance, wanted=True, key=f"tell-{instance}:tell", lease=1)
    assert (told["instance_id"], told["status"]) == (instance, "running")
    backup_id, at = back_up(cell, instance), "2026-11-26T12:00:00.000Z"
    with pytest.raises(CellRefused, match="the engine of the instance has no WAL"):
        cell.restore(instance, backup_id, at, key=f"restore-{instance}:restore", lease=1)


def test_only_backups_of_what_has_no_data_here_are_taken_over(
    cell: CellClient, instance: str
) -> None:
    with pytest.raises(CellRefused, match="the cell has the data of the instance"):
        cell.take_over_backups(instance, [], key=f"find-{instance}:find", lease=1)
    unknown = new_id()
    found = cell.take_over_backups(unknown, ["0" * 64], key=f"find-{unknown}:find", lease=1)
    assert found == {"items": []}
    observed = cell.observe(instance)
    assert observed is not None
    assert observed["data_lost"] is False


def test_dropped_backups_are_gone_and_deleted_instances_keep_theirs(
    cell: CellClient, instance: str, spec: Callable[..., dict[str, Any]]
) -> None:
    gone, kept = back_up(cell, instance), back_up(cell, instance)
    for name in ("first", "second"):
        cell.drop_backups(instance, [gone], key=f"{name}-{gone}:drop", lease=1)
    with pytest.raises(CellRefused):
        cell.restore(instance, gone, key=f"restore-{gone}:restore", lease=1)
    cell.delete(instance, key=f"delete-{instance}:delete", lease=1)
    restored = new_id()
    begun = spec(restored, source_backup=f"{instance}/{kept}")
    assert cell.put(restored, begun, key=f"put-{restored}:put", lease=1)["status"] == "running"
    cell.drop_backups(instance, [kept], key=f"drop-{kept}:drop", lease=1)
    cell.erase(instance, key=f"erase-{instance}:erase", lease=1)
    with pytest.raises(CellRefused):
        back_up(cell, instance)


def test_an_instance_put_is_observed(
    cell: CellClient, instance: str, spec: Callable[..., dict[str, Any]]
) -> None:
    observed = cell.observe(instance)
    assert observed is not None
    assert observed["instance_id"] == instance
    assert observed["status"] == "running"
    assert observed["paused_by"] is None
    assert observed["credentials"]["generation"] == 1
    assert observed["host"] == spec(instance)["host"]
    assert {"port", "storage_bytes", "memory_bytes", "cpu_s", "connections"} <= set(observed)
    assert instance in [one["instance_id"] for one in cell.observations()]
    assert {"storage_bytes", "memory_bytes", "cpu_s"} <= set(cell.capacity(instance))


def test_what_is_not_here_is_unknown(cell: CellClient) -> None:
    absent = new_id()
    assert cell.observe(absent) is None
    with pytest.raises(InstanceUnknown):
        cell.pause(absent, key=f"pause-{absent}:pause", lease=1)
    with pytest.raises(InstanceUnknown):
        cell.capacity(absent)


def test_a_key_acts_once(cell: CellClient, instance: str) -> None:
    key = f"pause-{instance}:pause"
    first = cell.pause(instance, key=key, lease=1)
    assert (first["status"], first["paused_by"]) == ("paused", "request")
    cell.resume(instance, key=f"resume-{instance}:resume", lease=1)
    again = cell.pause(instance, key=key, lease=2)
    assert again["status"] == "paused", "the answer that was kept"
    observed = cell.observe(instance)
    assert observed is not None
    assert observed["status"] == "running", "and nothing done a second time"


def test_an_older_lease_is_refused(cell: CellClient, instance: str) -> None:
    operation = f"change-{instance}"
    cell.pause(instance, key=f"{operation}:pause", lease=3)
    with pytest.raises(LeaseLost):
        cell.resume(instance, key=f"{operation}:resume", lease=2)
    observed = cell.observe(instance)
    assert observed is not None
    assert observed["status"] == "paused"


def test_a_change_of_size_and_a_snapshot(cell: CellClient, instance: str) -> None:
    taken = cell.snapshot(instance, "before", key=f"change-{instance}:back_up", lease=1)
    assert taken["snapshot_id"]
    assert taken["size_bytes"] > 0
    resized = cell.resize(instance, LARGER, key=f"change-{instance}:apply", lease=1)
    assert resized["status"] == "running"


def test_a_put_on_a_paused_instance_leaves_it_paused(
    cell: CellClient, instance: str, spec: Callable[..., dict[str, Any]]
) -> None:
    cell.pause(instance, key=f"pause-{instance}:pause", lease=1)
    told = cell.put(instance, spec(instance, size=LARGER), key=f"tell-{instance}:put", lease=1)
    assert told["status"] == "paused"


def test_an_older_network_does_not_replace_a_newer_one(
    cell: CellClient, instance: str, spec: Callable[..., dict[str, Any]]
) -> None:
    def tell(version: int) -> int:
        wanted = {"network_version": version, "allow_cidrs": [], "client_ca_pem": None}
        key = f"tell-{version}-{instance}:tell"
        said = cell.set_network(instance, {**wanted, "domains": []}, key=key, lease=1)
        return int(said["network_version"])

    assert [tell(3), tell(2)] == [3, 3]
    older = spec(instance, size=LARGER, network_version=1)
    said = cell.put(instance, older, key=f"tell-{instance}:put", lease=1)
    assert (said["network_version"], said["size"]) == (3, LARGER["name"])
    with pytest.raises(InstanceUnknown):
        cell.set_network(
            new_id(),
            {"network_version": 1, "allow_cidrs": [], "client_ca_pem": None, "domains": []},
            key=f"tell-none-{instance}:tell",
            lease=1,
        )


def test_deleted_keeps_erased_does_not(
    cell: CellClient, instance: str, spec: Callable[..., dict[str, Any]]
) -> None:
    assert cell.delete(instance, key=f"delete-{instance}:delete", lease=1)["status"] == "stopped"
    erased = cell.erase(instance, key=f"erase-{instance}:erase", lease=1)
    assert erased["status"] == "erased"
    again = cell.erase(instance, key=f"erase-again-{instance}:erase", lease=1)
    assert again["status"] == "erased"
    with pytest.raises(CellRefused):
        cell.resume(instance, key=f"resume-{instance}:resume", lease=1)
    with pytest.raises(CellRefused):
        cell.put(instance, spec(instance), key=f"put-again-{instance}:put", lease=1)
