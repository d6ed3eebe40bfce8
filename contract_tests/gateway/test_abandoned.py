"""Sessions left behind by their clients: what is noted of them has bounds."""

from pathlib import Path

from gateway.abandoned import NOTED_MAX, NOTED_OF_ONE_MAX, Abandoned
from gateway.wake import Waker


def test_those_of_one_instance_leave_room_for_those_of_others(tmp_path: Path) -> None:
    abandoned = Abandoned(Waker(tmp_path))
    for number in range(NOTED_MAX + 1):
        abandoned.note("inst_crowd", number)
    abandoned.note("inst_other", 1)
    assert len(abandoned._noted) == NOTED_OF_ONE_MAX + 1
    for number in range(NOTED_MAX + 1):
        abandoned.ended("inst_crowd", number)
    abandoned.note("inst_crowd", 1)
    assert set(abandoned._noted) == {("inst_crowd", 1), ("inst_other", 1)}
    assert set(abandoned._noted_of) == {"inst_crowd", "inst_other"}
