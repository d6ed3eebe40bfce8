"""PostgreSQL's first packets, as they may be cut, damaged and put together."""

import contextlib
import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocols import postgres_wire as wire
from gateway.protocols.postgres_wire import Cancel, Messages, PostgresWireError, Startup

# Replaced and not filtered out: Hypothesis likes zeros too much to draw long without one.
words = st.binary(max_size=30).map(lambda word: word.replace(b"\0", b"\1"))
named = st.binary(min_size=1, max_size=30).map(lambda word: word.replace(b"\0", b"\1"))
startups = st.builds(
    Startup,
    st.sampled_from([3 << 16, (3 << 16) + 2, (3 << 16) + 9_999]),
    st.lists(st.tuples(named, words), max_size=8).map(tuple),
)


@given(startups)
def test_what_is_built_parses_to_the_same(startup: Startup) -> None:
    packet = wire.build(startup)
    assert wire.packet_size(packet) == len(packet)
    assert wire.parse(packet) == startup


@given(st.integers(0, 2**32 - 1), st.binary(min_size=4, max_size=256))
def test_a_cancel_request_parses_to_the_same(pid: int, secret: bytes) -> None:
    packet = wire.cancel_request(Cancel(pid, secret))
    assert wire.packet_size(packet) == len(packet)
    assert wire.parse(packet) == Cancel(pid, secret)


@given(st.binary(max_size=80), st.sampled_from([3 << 16, wire.CANCEL_CODE, 2 << 16]))
def test_noise_never_does_more_than_refuse(noise: bytes, code: int) -> None:
    for packet in (noise, struct.pack("!II", 8 + len(noise), code) + noise):
        with contextlib.suppress(PostgresWireError):
            if wire.packet_size(packet) == len(packet):
                wire.parse(packet)


@pytest.mark.parametrize(
    ("value", "left", "name"),
    [
        (b"endpoint=pg-1", None, "pg-1"),
        (b"-c a=b endpoint=pg-1", b"-c a=b", "pg-1"),
        (b"endpoint=pg-1   -c a=b", b"-c a=b", "pg-1"),
        (b"-c a=b endpoint=pg-1 -c c=d", b"-c a=b -c c=d", "pg-1"),
        (b"-c my.endpoint=pg-1", b"-c my.endpoint=pg-1", None),
        (b"-c a=b", b"-c a=b", None),
    ],
)
def test_the_endpoint_is_taken_out_of_the_options(
    value: bytes, left: bytes | None, name: str | None
) -> None:
    startup, found = wire.take_endpoint(Startup(3 << 16, ((b"user", b"a"), (b"options", value))))
    assert found == name
    assert startup.values(b"options") == ([] if left is None else [left])
    assert startup.values(b"user") == [b"a"]


messages = st.builds(
    lambda kind, body: struct.pack("!cI", kind, 4 + len(body)) + body,
    st.sampled_from([b"R", b"S", b"N", b"v"]),
    st.binary(max_size=300),
)


@given(
    before=st.lists(messages, max_size=6).map(b"".join),
    secret=st.binary(min_size=4, max_size=256),
    after=st.binary(max_size=100),
    cuts=st.lists(st.integers(0, 2_000), max_size=12),
)
def test_the_key_is_found_however_messages_are_cut(
    before: bytes, secret: bytes, after: bytes, cuts: list[int]
) -> None:
    key = wire.key_data(77, secret)
    whole = before + key + after
    edges = [0, *sorted({cut % len(whole) for cut in cuts}), len(whole)]
    cutter, passed, end = Messages(), b"", None
    for start, stop in itertools.pairwise(edges):
        if end is not None:
            end += whole[start:stop]  # spliced: nobody looks any more
            continue
        passing, end = cutter.take(whole[start:stop])
        passed += passing
    assert passed == before
    assert end == key + after


@given(before=st.lists(messages, max_size=4).map(b"".join), after=st.binary(max_size=50))
def test_a_server_that_gives_no_key_is_spliced_all_the_same(before: bytes, after: bytes) -> None:
    ready = b"Z\0\0\0\x05I"
    assert Messages().take(before + ready + after) == (before, ready + after)


@given(st.binary(max_size=300))
def test_a_backend_that_speaks_nonsense_is_refused_or_passed_on(noise: bytes) -> None:
    with contextlib.suppress(PostgresWireError):
        passing, end = Messages().take(noise)
        assert noise.startswith(passing + (end or b""))


def test_an_error_has_the_fields_clients_look_for() -> None:
    said = wire.error("53300", "too many", "wait")
    assert said == b"E" + struct.pack("!I", len(said) - 1) + (
        b"SFATAL\0VFATAL\0C53300\0Mtoo many\0Hwait\0\0"
    )
