"""An overlap that ends although the engine cannot be told: it is ended, whatever the reason."""

import os
from pathlib import Path
from typing import Any

import pytest

from cell.access.credentials import Credentials
from cell.database import Database
from cell.engines.driver import Login, NewLoginError
from cell.engines.resp.configuration import USERS
from cell.instances import overlaps
from cell.instances.hosted import HostedInstance
from cell.instances.overlaps import Overlaps
from cell.instances.records import InstanceRecord
from cell.instances.supervisor import Supervisor
from cell.layout import Layout
from cell.sealing import Sealer
from cell.settings import CellSettings
from contract_tests.engines.conftest import Subject, on_either_resp

pytestmark = on_either_resp


@pytest.fixture
def credentials(tmp_path: Path) -> Credentials:
    sealer = Sealer(os.urandom(32), "credentials")
    return Credentials(Database(tmp_path / "cell.db"), sealer)


@pytest.fixture
def supervisor(
    running: Subject, layout: Layout, tmp_path: Path, credentials: Credentials
) -> Supervisor:
    settings = CellSettings(tmp_path, "cell_x", b"")
    nothing: Any = None
    return Supervisor(settings, layout, running.host, nothing, credentials, *[nothing] * 3)


@pytest.fixture
def instance(running: Subject, credentials: Credentials, supervisor: Supervisor) -> HostedInstance:
    """With a credential whose overlap is over, and the next."""
    record = InstanceRecord(
        running.site.instance_id, running.site.uid, running.spec, "running", None, 0.0
    )
    made = HostedInstance(record, running.site, running.driver)
    assert running.process is not None
    made.engine_started(running.process)
    made.became_usable(0)
    former = credentials.make(made.instance_id, 0)
    running.run(supervisor.hand_out_credentials(made))
    assert running.works(Login("app", former.password))
    credentials.make(made.instance_id, 0)
    return made


def test_an_engine_that_cannot_be_told_is_ended(
    running: Subject,
    monkeypatch: pytest.MonkeyPatch,
    credentials: Credentials,
    supervisor: Supervisor,
    instance: HostedInstance,
) -> None:
    process, instance_id = running.process, instance.instance_id
    assert process is not None
    file = running.site.configuration / USERS
    ending = Overlaps(credentials, supervisor.hand_out_credentials)
    file.unlink()
    file.mkdir()
    assert ending.due() == {instance_id}
    assert ending.due() == set()
    running.run(ending.end(instance_id, instance))
    assert process.alive
    monkeypatch.setattr(overlaps, "WITHIN_S", 0.0)
    assert ending.due() == {instance_id}
    running.run(ending.end(instance_id, instance))
    running.run(process.ended())
    assert "could not be told" in instance.why_ended(process, 0)
    file.rmdir()
    running.run(supervisor.hand_out_credentials(instance))
    former = credentials.ended(instance_id)[0]
    running.login = supervisor.login(instance)
    running.start()
    assert running.works(running.login)
    assert not running.works(Login("app", former.password))


def test_nobody_is_locked_out_by_a_login_that_does_not_work(
    running: Subject,
    monkeypatch: pytest.MonkeyPatch,
    credentials: Credentials,
    instance: HostedInstance,
) -> None:
    async def refused(_: HostedInstance) -> None:
        raise NewLoginError("it does not work")

    monkeypatch.setattr(overlaps, "WITHIN_S", 0.0)
    ending = Overlaps(credentials, refused)
    for _ in range(2):
        running.run(ending.end(instance.instance_id, instance))
    assert running.process is not None
    assert running.process.alive
    assert credentials.ended(instance.instance_id)
