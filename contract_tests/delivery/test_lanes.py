"""Whose lanes are taken when there are more than places."""

from datetime import timedelta

from control.delivery.lanes import PAUSE_FROM, LaneSlots, pause
from storage.events.delivery_lanes import DeliveryLane, LaneHeld


def waiting(org: str, count: int, *, doubtful: bool = False) -> list[tuple[str, str, bool]]:
    return [(f"{org}{number}", org, doubtful) for number in range(count)]


def held(org: str, count: int, *, doubtful: bool = False) -> list[LaneHeld]:
    return [LaneHeld(f"{org}-{number}", org, 1, doubtful) for number in range(count)]


def test_receivers_in_doubt_never_have_more_than_half_of_the_places() -> None:
    many = [each for org in "abcdefghij" for each in waiting(org, 10, doubtful=True)]
    assert len(LaneSlots(100).chosen(many, [])) == 50
    sound = waiting("z", 5)
    assert LaneSlots(100).chosen(many + sound, held("y", 50, doubtful=True)) == [
        each[0] for each in sound
    ]


def test_an_organization_takes_a_place_while_it_has_fewer_than_are_free() -> None:
    assert len(LaneSlots(100).chosen(waiting("a", 100), [])) == 20
    assert len(LaneSlots(8).chosen(waiting("a", 100), [])) == 4
    crowd = held("a", 4)
    assert len(LaneSlots(8).chosen(waiting("a", 9) + waiting("b", 9), crowd)) == 2
    assert LaneSlots(8).busy(crowd) == ["a"]
    assert LaneSlots(100).busy(crowd) == []


def test_a_lane_rests_after_many_failures_and_no_longer_than_a_minute() -> None:
    rests = [pause(DeliveryLane(failures=count)) for count in range(200)]
    assert rests[:PAUSE_FROM] == [timedelta()] * PAUSE_FROM
    assert rests[PAUSE_FROM] == timedelta(seconds=1)
    assert max(rests) == rests[-1] == timedelta(seconds=60)
