"""Whatever a cell answers, it is unavailable or one record is left out; nothing else happens."""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from contract_tests.workflows.cell_server import Server, said, serving
from contract_tests.workflows.fake_cell import FakeCell
from control.cells import answer_checks
from control.cells.client import CellRefused, CellUnavailable, HttpCell
from control.cells.http_cells import HttpCells
from control.cells.queues import QueueRefused
from control.cells.signing import Signer
from control.policy.catalogue import CellReport, make_catalogue
from control.work import Again, LeaseLost
from storage.catalogue.cells import Cell

ID = "inst_01JD0000000000000000000000"
OTHER = "inst_01JD0000000000000000000001"
BACKUP = "bkp_01JD0000000000000000000000"
MIGRATION = "mig_01JD0000000000000000000000"
OLDER = {
    "cells.get": {"refused", "clock", "capacity", "has_second_store", "confinement"},
    "instances.get": {
        "data_lost",
        "connections_peaks",
        "domains",
        "network_version",
        "backup",
        "restore",
        "restored",
        "archiving",
        "copies",
        "statements",
    },
    "backups.make": {"wal_chain_id", "consistent_at", "method", "parent_id"},
}
"""What cells of earlier releases do not say."""
ASKED: dict[str, Callable[[HttpCell], Any]] = {
    "cells.get": lambda c: c.describe(),
    "instances.get": lambda c: c.observe(ID),
    "instances.capacity": lambda c: c.capacity(ID),
    "instances.pause": lambda c: c.pause(ID, key="op_1:pause", lease=1),
    "instances.snapshot": lambda c: c.snapshot(ID, "before", key="op_1:copy", lease=1),
    "backups.make": lambda c: c.back_up(ID, BACKUP, "manual", key="op_1:copy", lease=1),
    "backups.take_over": lambda c: c.take_over_backups(ID, [], key="op_1:find", lease=1),
    "backups.list_copies": lambda c: c.backup_copies(ID),
    "backups.drop": lambda c: c.drop_backups(ID, [BACKUP], key="op_1:drop", lease=1),
    "migrations.get": lambda c: c.migrations(ID).observe(MIGRATION),
    "migrations.cancel": lambda c: c.migrations(ID).cancel(MIGRATION, key="op_1:drop", lease=1),
}
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.sampled_from(["9" * 5_000, "2026-06-30T23:59:60Z", "0000-01-01T00:00:00Z"]),
)
ODD = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text("ab", max_size=2), inner, max_size=3)
    ),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as made:
        yield made


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[HttpCell]:
    signer = Signer(Ed25519PrivateKey.generate(), clock=time.time)
    made = HttpCell("cell_1", f"http+unix://{server.server_address!s}", signer)
    yield made
    made.close()


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield at
    if isinstance(value, dict):
        for name, each in value.items():
            yield from places(each, (*at, name))
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from places(each, (*at, number))


@st.composite
def mutated(draw: st.DrawFn, right: Any) -> Any:
    """The right answer with one to three of its members gone, or of any other value."""
    wrong = deepcopy(right)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.sampled_from(list(places(wrong))))
        if not at:
            return draw(ODD)
        holder = wrong
        for part in at[:-1]:
            holder = holder[part]
        if draw(st.booleans()):
            holder[at[-1]] = draw(ODD)
        else:
            del holder[at[-1]]
    return wrong


@pytest.mark.parametrize("operation", ASKED)
@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_an_odd_answer_is_none(
    server: Server, client: HttpCell, operation: str, data: st.DataObject
) -> None:
    server.answer = (200, orjson.dumps(data.draw(mutated(said(operation)))))
    with suppress(CellUnavailable):
        told = ASKED[operation](client)
        assert answer_checks.fault(operation, told) is None
        if operation == "cells.get":
            refused = told.get("refused", [])
            assert make_catalogue([CellReport.of("local", told["engines"], refused)]).offers


@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_an_odd_record_is_left_out(server: Server, client: HttpCell, data: st.DataObject) -> None:
    right = said("instances.get")
    odd = data.draw(mutated(right))
    server.answer = (200, orjson.dumps({"items": [odd, {**right, "instance_id": OTHER}]}))
    with suppress(CellUnavailable):
        found = client.observations()
        assert OTHER in {each["instance_id"] for each in found} | found.unread
        assert len(found) + len(found.unread) == 2 or found.unread == {OTHER}
        assert all(answer_checks.fault("instances.get", each) is None for each in found)


@settings(deadline=None, max_examples=25)
@given(status=st.sampled_from([400, 401, 404, 409, 422, 429, 500, 503]), data=st.data())
def test_an_odd_refusal_is_a_refusal(
    server: Server, client: HttpCell, status: int, data: st.DataObject
) -> None:
    right = {"code": "in_flight", "detail": "it runs", "status": 409, "errors": [{"pointer": "/a"}]}
    server.answer = (status, orjson.dumps(data.draw(mutated(right))))
    meanings = (CellUnavailable, CellRefused, LeaseLost, Again)
    with pytest.raises(meanings):
        client.pause(ID, key="op_1:pause", lease=1)
    with pytest.raises((QueueRefused, *meanings)):
        client.queues(ID).purge("jobs", key="op_1")


@pytest.mark.parametrize(
    "odd",
    [
        {"engines": [{"engine": "postgres", "versions": ["18", 5], "source": "x"}]},
        {"engines": [{"engine": "postgres", "versions": None, "source": "x"}]},
        {"engines": [{"engine": "postgres", "versions": "18", "source": "x"}]},
        {"engines": {"engine": "postgres"}},
        {"refused": [{"engine": "duckdb"}]},
        {"capacity": {"vcpu": "a", "memory_bytes": 1, "storage_bytes": 1}},
        {"clock": {"host_time": "late", "offset_s": 0}},
        {"ca": {"root_pem": "-----BEGIN CERTIFICATE-----\nMII\n", "chain_pem": "x"}},
        {"more": ["x" * 1_000] * 300},
    ],
)
def test_a_cell_that_misdescribes_itself_is_unavailable(
    server: Server, client: HttpCell, odd: dict[str, Any]
) -> None:
    server.answer = (200, {**said("cells.get"), **odd})
    with pytest.raises(CellUnavailable):
        client.describe()


def test_of_whom_nothing_can_be_told_is_not_gone(server: Server, client: HttpCell) -> None:
    right = said("instances.get")
    odd = {**right, "credentials": {"generation": 6_000_000_000, "overlap_until": None}}
    server.answer = (200, {"items": [odd, {**right, "instance_id": OTHER}]})
    found = client.observations()
    assert [each["instance_id"] for each in found] == [OTHER]
    assert found.unread == {ID}
    server.answer = (200, {"items": [right, right, {**right, "instance_id": OTHER}]})
    found = client.observations()
    assert [each["instance_id"] for each in found] == [OTHER]
    assert found.unread == {ID}


def test_too_many_observations_are_no_answer() -> None:
    right = said("instances.get")
    many = [{**right, "instance_id": f"inst_{number}"} for number in range(20_001)]
    assert answer_checks.observations(many, "cell_1") is None
    found = answer_checks.observations(many[1:], "cell_1")
    assert found is not None
    assert len(found) == 20_000


def test_an_answer_about_another_instance_is_none(server: Server, client: HttpCell) -> None:
    for operation in ("instances.get", "instances.capacity", "instances.pause"):
        server.answer = (200, {**said(operation), "instance_id": OTHER})
        with pytest.raises(CellUnavailable, match="about another instance"):
            ASKED[operation](client)


@pytest.mark.parametrize("operation", ASKED)
def test_cells_of_other_releases_are_understood(operation: str) -> None:
    right = said(operation)
    assert answer_checks.fault(operation, right) is None
    assert answer_checks.fault(operation, {**right, "newer": {"is": 1}}) is None
    for name in right:
        less = {each: value for each, value in right.items() if each != name}
        accepted = answer_checks.fault(operation, less) is None
        assert accepted == (name in OLDER.get(operation.replace("pause", "get"), ())), name


def test_the_fake_cell_is_as_the_document_says(tmp_path: Path) -> None:
    fake = FakeCell(tmp_path / "cell.db")
    fake.becomes(ID)
    assert answer_checks.fault("cells.get", fake.describe()) is None
    (one,) = fake.observations()
    assert answer_checks.fault("instances.get", one) is None
    assert answer_checks.fault("instances.capacity", fake.capacity(ID)) is None
    made = fake.snapshot(ID, "before", key="op_1:copy", lease=1)
    assert answer_checks.fault("instances.snapshot", made) is None
    backup = fake.back_up(ID, BACKUP, "manual", key="op_2:copy", lease=1)
    assert answer_checks.fault("backups.make", backup) is None
    dropped = fake.drop_backups(ID, [BACKUP], key="op_3:drop", lease=1)
    assert answer_checks.fault("backups.drop", dropped) is None


def test_a_ca_that_cannot_be_read_makes_a_cell_unavailable_and_no_more_clients() -> None:
    clients = HttpCells(Signer(Ed25519PrivateKey.generate(), clock=time.time))
    url = "https://cell.local.example:8443"
    with pytest.raises(CellUnavailable, match="CA cannot be read"):
        clients.for_cell(Cell(id="cell_1", url=url, ca_root_pem="x"))
    right = said("cells.get")["ca"]["root_pem"]
    for pem in (right, f"{right}\n", f"{right}\n\n"):
        clients.for_cell(Cell(id="cell_1", url=url, ca_root_pem=pem))
    assert len(clients._clients) == 1
    clients.close()
