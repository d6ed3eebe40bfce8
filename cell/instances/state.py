"""The state of an instance in its cell, and every change of it: nothing else writes it."""

import time
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Final

from cell.instances.reasons import for_owner
from cell.instances.records import InstanceRecord
from cell.runtime.process import Process
from cell.specification import Spec
from cell.timestamps import moment
from specserver import Conflict

GONE: Final = ("stopped", "erased")
ERASED: Final = "cannot provision an instance that is erased"


class InstanceState:
    """What is wanted of it (`record`), and how its engine is doing. A method makes one change.

    Changes are made with the instance's lock held, and in memory only: whoever makes one of the
    record saves it and tells the gateway, in the order that keeps clients from engines that end.
    docs/cell.md has the picture.
    """

    def __init__(self, record: InstanceRecord) -> None:
        self._record = record
        self._process: Process | None = None
        self._usable = False
        self._failed = False
        self._reason: str | None = None
        self._going_to_sleep = False
        self._failures = 0
        self._restarts = 0
        self._memory_kills = 0
        self._expected_end: str | None = None

    @property
    def record(self) -> InstanceRecord:
        return self._record

    @property
    def process(self) -> Process | None:
        """The engine's, from its start on."""
        return self._process

    @property
    def usable(self) -> bool:
        """True after a login worked."""
        return self._usable

    @property
    def failed(self) -> bool:
        return self._failed

    @property
    def reason(self) -> str | None:
        """What is or was wrong, for the owner."""
        return self._reason

    @property
    def going_to_sleep(self) -> bool:
        return self._going_to_sleep

    @property
    def failures(self) -> int:
        """Quick ones, in a row."""
        return self._failures

    @property
    def restarts(self) -> int:
        return self._restarts

    @property
    def status(self) -> str:
        if self._record.desired != "running":
            return self._record.desired
        if self._usable:
            return "running"
        return "failed" if self._failed else "provisioning"

    @property
    def route_state(self) -> str:
        """What the gateway is told."""
        if self._going_to_sleep:
            return "idle"
        if self._record.desired == "paused" and self._record.paused_by == "idle":
            return "idle"
        return {"provisioning": "starting"}.get(self.status, self.status)

    # What is wanted of it.

    def refuse_gone(self, verb: str) -> None:
        """Raises Conflict where it is deleted or erased."""
        if self._record.desired in GONE:
            raise Conflict(f"cannot {verb} an instance that is {self._record.desired}")

    def refuse_erased(self) -> None:
        """Raises Conflict."""
        if self._record.desired == "erased":
            raise Conflict(ERASED)

    def specify(self, spec: Spec) -> None:
        """One that was deleted is back; whoever asks for it says next whether it is to run."""
        self.refuse_erased()
        self._record = replace(self._record, spec=spec)
        if self._record.desired == "stopped":
            self._record = replace(self._record, desired="paused", paused_by="request")

    def lose_domains(self, lost: Collection[str]) -> None:
        """They lead to another instance from now on."""
        spec = self._record.spec
        kept = [each for each in spec.domains if each not in lost]
        self._record = replace(self._record, spec=spec.with_domains_of(kept))

    def with_told_network(self, spec: Spec, domains: Collection[str]) -> Spec:
        """What is specified, with what was told later than that of who may reach it.

        `domains` are those of the specification that are its own still.
        """
        own = self._record.spec
        if spec.network_version < own.network_version:
            return spec.with_newest_network(own)
        return spec.with_domains_of(domains).with_access_of(own)

    def add_domains(self, further: Iterable[str]) -> None:
        """They lead to this instance too, whatever is wanted of it otherwise."""
        self.refuse_erased()
        spec = self._record.spec
        named = tuple(dict.fromkeys((*spec.domains, *further)))
        self._record = replace(self._record, spec=replace(spec, domains=named))

    def restrict(self, spec: Spec) -> bool:
        """Whether who may reach it is another matter now; it does not get further domains."""
        own = self._record.spec
        wanted = own.with_domains_of(spec.domains).with_access_of(spec)
        self._record = replace(self._record, spec=wanted)
        return wanted != own

    def archive_continuously(self, *, wanted: bool) -> None:
        spec = self._record.spec.archived(wanted=wanted)
        self._record = replace(self._record, spec=spec)

    def copy_backups(self, *, wanted: bool) -> None:
        spec = self._record.spec.copied(wanted=wanted)
        self._record = replace(self._record, spec=spec)

    def pause(self) -> None:
        self.refuse_gone("pause")
        self._record = replace(self._record, desired="paused", paused_by="request")
        self._failed, self._reason = False, None

    def resume(self) -> bool:
        """False where it is to run already."""
        self.refuse_gone("resume")
        if self._record.desired == "running":
            return False
        self._record = replace(self._record, desired="running", paused_by=None)
        return True

    def begin_sleep(self) -> None:
        """From now on the gateway holds whoever comes."""
        self._going_to_sleep = True

    def fall_asleep(self) -> None:
        if self.status != "running":
            raise Conflict(f"an instance that is {self.status} cannot fall asleep")
        self._record = replace(self._record, desired="paused", paused_by="idle")

    def end_sleep(self) -> None:
        """It sleeps, or somebody came."""
        self._going_to_sleep = False

    def delete(self) -> bool:
        """False where it is erased already."""
        if self._record.desired == "erased":
            return False
        self._record = replace(self._record, desired="stopped", paused_by=None)
        self._failed, self._reason = False, None
        return True

    def erase(self) -> None:
        self._record = replace(self._record, desired="erased", paused_by=None)
        self._failed, self._reason = False, None

    # What becomes of its engine.

    def engine_started(self, process: Process) -> None:
        self._process = process

    def became_usable(self, memory_kills: int) -> None:
        """`memory_kills`: how often the kernel ended processes of it for want of memory so far."""
        self._memory_kills = memory_kills
        self._usable, self._failed = True, False
        self._reason = self._expected_end = None

    def became_unusable(self) -> None:
        """It runs, and is to be stopped."""
        self._usable = False

    def expect_end(self, reason: str) -> None:
        """The engine is being ended, so that it starts again, and this is why.

        Without the lock: what works on the instance would hold it until the engine has ended.
        """
        self._expected_end = reason

    def why_ended(self, process: Process, memory_kills: int) -> str:
        """Of an engine that nobody stopped."""
        if memory_kills > self._memory_kills:
            return "the engine was stopped because it exceeded the memory of its size"
        return f"the engine exited: {self._expected_end or process.exit_reason}"

    def engine_ended(self) -> Process | None:
        """Answers the process that it had."""
        process, self._process = self._process, None
        self._usable, self._expected_end = False, None
        return process

    def was_healthy(self) -> None:
        """It ran for so long that what ended it is not what ended it before."""
        self._failures = 0

    def restarting(self, reason: str, failures_max: int) -> None:
        """After a failure. After so many in a row it is `failed`, and is still tried again."""
        self._failures += 1
        told = for_owner(reason)
        self._reason = f"being started again, {moment(time.time())}: {told}"
        if self._failures >= failures_max:
            self._failed = True
            times = self._failures
            self._reason = f"the engine failed {times} times in a row; last reason: {told}"

    def restarted(self, reason: str) -> None:
        self._restarts += 1
        self._reason = f"started again at {moment(time.time())}: {for_owner(reason)}"

    def start_failed(self, reason: str) -> None:
        """Nothing starts it again but a request."""
        self._failed, self._reason = True, for_owner(reason)

    def explain(self, reason: str) -> None:
        """To its owner, what is special about it; its status stays."""
        self._reason = reason
