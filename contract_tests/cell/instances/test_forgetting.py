"""Holds that what is over is forgotten: the cell's memory and reports do not grow for ever."""

from collections.abc import Callable
from pathlib import Path

import pytest

from cell.database import Database
from cell.instances import records
from cell.instances.records import Records
from cell.instances.uids import Uids
from cell.specification import Spec
from contract_tests.cell.rig import VALKEY, Rig, new_id, spec, until


def reported(rig: Rig) -> list[str]:
    return [each["instance_id"] for each in rig.get("/v1/instances").json()["items"]]


# Slow for what it adds by day.
@pytest.mark.nightly
def test_an_erased_instance_is_reported_for_a_while_and_then_forgotten(
    make_rig: Callable[..., Rig],
) -> None:
    rig = make_rig(erased_told_s=0.5)
    rig.usual = VALKEY
    kept, erased = rig.make(), rig.make()
    assert rig.action(erased, "erase")["status"] == "erased"
    assert erased in reported(rig)
    until(lambda: reported(rig) == [kept], "the erased instance is forgotten")

    assert rig.get(f"/v1/instances/{erased}").status_code == 404
    assert rig.act("POST", f"/v1/instances/{erased}/actions/erase").status_code == 404
    for after_a_start in (False, True):
        if after_a_start:
            rig.terminate()
            rig.start(erased_told_s=0.5)
        again = rig.act("PUT", f"/v1/instances/{erased}", spec(erased))
        assert again.status_code == 409
        assert "erased" in again.json()["detail"]
    assert reported(rig) == [kept]


def test_an_erased_instance_stays_until_the_control_plane_has_heard_of_it(
    make_rig: Callable[..., Rig],
) -> None:
    rig = make_rig(erased_told_s=0.0)
    rig.usual = VALKEY
    untold, told = rig.make(), rig.make()
    rig.action(told, "erase")
    until(lambda: reported(rig) == [untold], "the erased instance is forgotten")
    rig.action(untold, "erase")
    # By then the cell has looked at what it may forget, several times.
    another = rig.make()
    assert rig.observe(untold)["status"] == "erased"
    assert reported(rig) == sorted([untold, another])


def test_erasures_are_known_for_a_month(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = Database(tmp_path / "cell.db")
    found = Records(database, Uids(database, range(5_000, 6_000), set))
    made = [found.add(f"inst_{number}", Spec.parse(spec(new_id()))) for number in range(3)]
    for each in made:
        found.forget(each)
    assert found.every() == []
    found.forget_old()
    assert all(found.was_erased(each.instance_id) for each in made)
    monkeypatch.setattr(records, "ERASED_KNOWN_MAX", 1)
    found.forget_old()
    assert [found.was_erased(each.instance_id) for each in made] == [False, False, True]
    monkeypatch.setattr(records, "ERASED_KNOWN_S", -60.0)
    found.forget_old()
    assert not found.was_erased(made[-1].instance_id)
