"""What a cell tells of an engine that runs: all that holds, in words that stay the same."""

from pathlib import Path
from typing import Any

import pytest

from cell.engines.driver import Metrics
from cell.instances.activity import Traffic
from cell.instances.hosted import HostedInstance
from cell.instances.records import InstanceRecord
from cell.layout import Layout
from cell.specification import Size, Spec

GB = 10**9
FULL = (
    "the storage is full: all of its 1.00 GB are used; remove data, or choose more storage or a "
    "larger size (resize)"
)


@pytest.fixture
def instance(tmp_path: Path) -> HostedInstance:
    size = Size("f0", 0.25, 2**28, GB, 20)
    spec = Spec("x", "1", size, "x.local", None, None, 0.0)
    driver: Any = None
    made = HostedInstance(
        InstanceRecord("inst_x", 1, spec, "running", None, 0.0),
        Layout.make(tmp_path).site("inst_x", 1),
        driver,
    )
    made.became_usable(0)
    return made


def told(instance: HostedInstance, used_bytes: int, notice: str | None = None) -> str | None:
    instance.metrics = Metrics(used_bytes, 0, 0.0, notice)
    reason: str | None = instance.observation(1, Traffic(), (1, None))["status_reason"]
    return reason


def test_a_full_storage_is_told_in_the_same_words_however_full_it_is(
    instance: HostedInstance,
) -> None:
    assert told(instance, GB) is None
    assert {told(instance, used) for used in (GB + 1, GB + 20_000_000, 2 * GB)} == {FULL}
    assert told(instance, GB) is None


def test_no_reason_hides_another(instance: HostedInstance) -> None:
    assert told(instance, 0, "events were stopped") == "events were stopped"
    assert told(instance, 2 * GB, "events were stopped") == f"{FULL}; events were stopped"
    instance.restarted("it crashed")
    assert told(instance, 0) == instance.reason
    assert told(instance, 2 * GB) == f"{instance.reason}; {FULL}"


def test_what_holds_while_it_runs_is_not_told_of_one_that_does_not(
    instance: HostedInstance,
) -> None:
    instance.pause()
    assert told(instance, 2 * GB, "events were stopped") is None
