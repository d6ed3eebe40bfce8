"""Backups by one-time URLs: what was backed up, opened, to whoever may have the data."""

import io
import os
import tarfile
from contextlib import ExitStack

import httpx
import pytest
import redis
import zstandard

from contract_tests.cell.backups.backup_calls import back_up, in_store, new_backup_id
from contract_tests.cell.backups.test_backups import Hosted, hosted
from contract_tests.cell.backups.test_dumps import code, got, holders
from contract_tests.cell.rig import Rig, until


@pytest.fixture(scope="module")
def light(shared_rig: Rig) -> Hosted:
    made = hosted(shared_rig, "valkey")
    made.make_table()
    made.write(1, 2)
    return made


@pytest.fixture(scope="module")
def backup_id(light: Hosted) -> str:
    return str(back_up(light.rig, light.instance_id)["backup_id"])


def test_a_backup_is_downloaded_whole_also_of_what_is_deleted(light: Hosted) -> None:
    other = light.another()
    other.write(5, 6)
    rig, instance_id = other.rig, other.instance_id
    backup_id = back_up(rig, instance_id)["backup_id"]
    rig.action(instance_id, "delete")
    answer = got(rig, instance_id, "download", backup_id=backup_id)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/zstd"
    name = f'attachment; filename="sales-{backup_id}.tar.zst"'
    assert answer.headers["content-disposition"] == name
    with zstandard.ZstdDecompressor().stream_reader(answer.content) as archive:
        content = archive.read()
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        files = tar.getnames()
    assert "appendonly.aof.manifest" in files
    rig.action(instance_id, "erase")
    assert got(rig, instance_id, "download", backup_id=backup_id).status_code == 409


def test_what_is_no_backup_of_the_instance_is_refused(light: Hosted, backup_id: str) -> None:
    other = light.another()
    for instance_id, named in (
        (light.instance_id, new_backup_id()),
        (other.instance_id, backup_id),
        (other.instance_id, f"../{light.instance_id}/{backup_id}"),
        (other.instance_id, ""),
    ):
        refused = got(light.rig, instance_id, "download", backup_id=named)
        assert code(refused) == (409, "conflict")
        assert "has no backup" in refused.json()["detail"]


def test_a_url_is_for_its_own_purpose_and_once(light: Hosted, backup_id: str) -> None:
    rig = light.rig
    token = rig.token(light.instance_id, "download", backup_id=backup_id)
    with rig.client() as http:
        for action in ("dump", "reveal", "logs"):
            assert code(http.get(f"/v1/{action}/{token}")) == (403, "bad_token")
        assert http.head(f"/v1/download/{token}").status_code == 405
        assert http.get(f"/v1/download/{token}").status_code == 200
        assert code(http.get(f"/v1/download/{token}")) == (410, "used")


def test_data_goes_only_to_where_clients_may_connect(light: Hosted) -> None:
    usual = {"engine": light.engine, "engine_version": light.version}
    other = light.another()
    rig, instance_id = other.rig, other.instance_id
    claims = {"backup_id": back_up(rig, instance_id)["backup_id"]}
    tokens = {each: rig.token(instance_id, each, **claims) for each in ("dump", "download")}
    rig.put(instance_id, **usual, allow_cidrs=["192.0.2.0/24"], network_version=2)
    with rig.client() as http:
        for action, token in tokens.items():
            assert code(http.get(f"/v1/{action}/{token}")) == (403, "address_not_allowed")
        rig.put(instance_id, **usual, allow_cidrs=None, network_version=3)
        for action, token in tokens.items():
            assert http.get(f"/v1/{action}/{token}").status_code == 200


def filled(light: Hosted, **changes: object) -> tuple[str, str]:
    """An instance with more than all that is between the cell and a client, and its backup."""
    made = light.another(**changes)
    with redis_of(made) as client:
        for number in range(6):
            client.set(f"large-{number}", os.urandom(1 << 20))
    return made.instance_id, str(back_up(made.rig, made.instance_id)["backup_id"])


def redis_of(made: Hosted) -> redis.Redis:
    login = made.login
    return redis.Redis(
        unix_socket_path=str(made.site.socket), username=login.username, password=login.password
    )


def test_a_tenant_has_two_at_a_time_and_whoever_loses_the_right_none(light: Hosted) -> None:
    rig = light.rig
    instance_id, backup_id = filled(light, tenant="t1")
    end = f"/v1/instances/{instance_id}/actions/end-access"

    def path(action: str = "download", holder: str = "key_a") -> str:
        token = rig.token(instance_id, action, backup_id=backup_id, holder=holder)
        return f"/v1/{action}/{token}"

    with rig.client() as http, ExitStack() as stack:
        opened = [
            stack.enter_context(http.stream("GET", path(action, holder)))
            for action, holder in (("download", "key_a"), ("dump", "key_b"))
        ]
        assert [each.status_code for each in opened] == [200, 200]
        wanted = [{"holder": each, "kind": "data"} for each in ("key_a", "key_b")]
        assert sorted(holders(rig, instance_id), key=str) == wanted
        third = path()
        assert code(http.get(third)) == (429, "too_many_at_once")
        assert rig.act("POST", end, {"holders": ["key_a"]}).status_code == 204
        with pytest.raises(httpx.RemoteProtocolError):
            opened[0].read()
        # It was not used up, and there is a place.
        assert http.get(third).status_code == 200
        opened[1].close()
        until(lambda: holders(rig, instance_id) == [], "nobody takes anything any more")


def test_a_backup_that_was_changed_is_broken_off(light: Hosted) -> None:
    rig = light.rig
    instance_id, backup_id = filled(light)
    part = next(each for each in in_store(rig, instance_id) if each.name == "part-000000")
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 1
    part.write_bytes(content)
    refused = got(rig, instance_id, "download", backup_id=backup_id)
    assert code(refused) == (409, "conflict")
    assert "not the one that was written" in refused.json()["detail"]
    part.unlink()
    refused = got(rig, instance_id, "download", backup_id=backup_id)
    assert "part 0 of the backup is missing" in refused.json()["detail"]
