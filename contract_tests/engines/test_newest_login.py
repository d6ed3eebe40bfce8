"""A new login is tried before the one before it ends: an engine must not be left without any."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cell.access.credentials import Credentials
from cell.database import Database
from cell.engines.driver import EngineError, Login
from cell.engines.resp.driver import Redis
from cell.instances.hosted import HostedInstance
from cell.instances.records import InstanceRecord
from cell.instances.supervisor import Supervisor
from cell.layout import Layout, Site
from cell.sealing import Sealer
from cell.settings import CellSettings
from contract_tests.engines.conftest import Subject


class Forgetful(Redis):
    """Forgets the newest of several logins, and the only one where there is no other."""

    async def set_credentials(self, site: Site, logins: Sequence[Login]) -> None:
        await super().set_credentials(site, logins[1:])


@pytest.mark.parametrize("subject", ["redis"], indirect=True)
def test_the_former_goes_on_where_the_newest_is_not_taken(
    running: Subject, layout: Layout, tmp_path: Path
) -> None:
    settings = CellSettings(tmp_path, "cell_x", b"")
    sealer = Sealer(os.urandom(32), "credentials")
    credentials = Credentials(Database(tmp_path / "cell.db"), sealer)
    nothing: Any = None
    record = InstanceRecord(
        running.site.instance_id, running.site.uid, running.spec, "running", None, 0.0
    )
    instance = HostedInstance(record, running.site, running.driver)
    instance.became_usable(0)
    supervisor = Supervisor(settings, layout, running.host, nothing, credentials, *[nothing] * 3)
    former = credentials.make(instance.instance_id, 0)
    running.run(supervisor.hand_out_credentials(instance))
    assert running.works(Login("app", former.password))
    credentials.make(instance.instance_id, 0)
    instance.driver = Forgetful(running.host)
    with pytest.raises(EngineError, match="does not accept the new login"):
        running.run(supervisor.hand_out_credentials(instance))
    assert running.works(Login("app", former.password))
    instance.driver = running.driver
    running.run(supervisor.hand_out_credentials(instance))
    assert not running.works(Login("app", former.password))
    assert running.works(supervisor.login(instance))
