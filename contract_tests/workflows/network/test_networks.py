"""Who can connect is told to the cell beside whatever is under way, and never replaced by older."""

from typing import Any

import pytest

from contract_tests.workflows.fake_cell import nothing
from contract_tests.workflows.known import take_turn
from contract_tests.workflows.stage import Stage
from control.cells.client import CellUnavailable
from control.work import Again
from control.workflows.instances.resizing import resize
from control.workflows.instances.starting import start
from control.workflows.network.networks import apply_network
from storage.database import now
from storage.instances import changes, instances
from storage.instances.instances import Instance
from storage.network import networks
from storage.network.networks import Network

OFFICE, HOME = ["192.0.2.0/24"], ["198.51.100.7/32"]


def replace(stage: Stage, instance: Instance, cidrs: list[str]) -> None:
    """As the handler does."""
    with stage.database.write() as db:
        network = networks.of_instance(db, instance)
        network.replace({"allow_cidrs": cidrs}, None)
        db.add(network)
        start(db, apply_network, instance)


def network_of(stage: Stage, instance: Instance) -> Network:
    with stage.database.read() as db:
        return networks.of_instance(db, instance)


def told(stage: Stage, instance: Instance) -> Any:
    return stage.cell.told(instance.id)["allow_cidrs"]


def some_turns(stage: Stage, count: int = 12) -> None:
    """Of what is due; what waits for long goes on waiting."""
    for _ in range(count):
        if not stage.turn():
            stage.pass_time(1)


def test_a_list_holds_while_the_instance_is_resized(stage: Stage) -> None:
    instance = stage.instance("running")
    with stage.database.write() as db:
        found = instances.fetch(db, stage.org_id, instance.id)
        changes.order(db, found, {"size": "s1"}, requested_by=None, now=now(db))

    def copies_for_hours(action: str, _: str) -> None:
        if action == "back_up":
            raise Again(5)

    stage.cell.before = copies_for_hours
    stage.start(resize.kind, instance)
    stage.turn()
    replace(stage, instance, OFFICE)
    some_turns(stage)
    assert told(stage, instance) == OFFICE
    assert network_of(stage, instance).is_applied
    assert stage.fetch(instance).status == "resizing"
    stage.cell.before = nothing


def test_one_that_the_cell_does_not_have_yet_is_told_once_it_does(stage: Stage) -> None:
    instance = stage.instance("requested")
    replace(stage, instance, OFFICE)
    some_turns(stage)
    assert not network_of(stage, instance).is_applied
    stage.start("instances.provision", instance)
    stage.settle()
    assert (told(stage, instance), network_of(stage, instance).is_applied) == (OFFICE, True)


def test_a_try_whose_answer_was_lost_is_not_taken_for_a_newer_one(stage: Stage) -> None:
    instance = stage.instance("running")

    def loses_its_answer(_action: str, _: str) -> None:
        raise CellUnavailable("the cell did not answer in time")

    stage.cell.after = loses_its_answer
    replace(stage, instance, OFFICE)
    stage.turn()
    stage.cell.after = nothing
    with stage.database.write() as db:
        network = networks.of_instance(db, instance)
        network.replace({"allow_cidrs": HOME}, None)
    stage.settle()
    assert (told(stage, instance), network_of(stage, instance).is_applied) == (HOME, True)


def test_what_a_cell_has_from_before_the_control_plane_was_restored_is_replaced(
    stage: Stage,
) -> None:
    instance = stage.instance("running")
    replace(stage, instance, OFFICE)
    stage.settle()
    later = {**stage.cell.told(instance.id), "network_version": 7, "allow_cidrs": None}
    stage.cell.becomes(instance.id, network_version=7, spec=later)
    with stage.database.write() as db:
        take_turn(db, "reconcile")
    stage.settle()
    assert told(stage, instance) == OFFICE
    assert network_of(stage, instance).cell_version == 8
    before = stage.cell.effects(instance.id)
    with stage.database.write() as db:
        take_turn(db, "reconcile")
    stage.settle()
    assert stage.cell.effects(instance.id) == before


@pytest.mark.every_database
def test_domains_outdate_what_was_told_and_change_no_setting(stage: Stage) -> None:
    instance = stage.instance("running")
    replace(stage, instance, OFFICE)
    stage.settle()
    former = network_of(stage, instance)
    stage.pass_time(10)
    for above, expected in ((0, 2), (7, 8), (3, 9)):
        with stage.database.write() as db:
            networks.domains_changed(db, instance, above)
        found = network_of(stage, instance)
        assert (found.cell_version, found.version) == (expected, former.version)
        assert found.updated_at == former.updated_at
