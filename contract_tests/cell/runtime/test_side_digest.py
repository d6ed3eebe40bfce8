"""A stream is hashed beside what else is done with it, and quiet work gives way to the rest."""

import asyncio
import contextlib
import hashlib
import os
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cell.runtime.own_threads import in_own_thread, in_quiet_thread
from cell.runtime.priority import QUIET
from cell.runtime.side_digest import SideDigest


def niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def of_a_thread_begun_here() -> int:
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(niceness()))
    thread.start()
    thread.join()
    return found[0]


@given(st.lists(st.binary(max_size=5_000), max_size=20))
def test_it_is_the_digest_of_all_in_its_order(blocks: list[bytes]) -> None:
    with contextlib.closing(SideDigest()) as digest:
        for each in blocks:
            digest.update(each)
        assert digest.hexdigest() == hashlib.sha256(b"".join(blocks)).hexdigest()
        digest.update(b"more")
        assert digest.hexdigest() == hashlib.sha256(b"".join(blocks) + b"more").hexdigest()


def test_it_is_not_asked_once_it_is_closed() -> None:
    """What was still to be counted is dropped, so an answer would be right by chance only."""
    with contextlib.closing(SideDigest()) as digest:
        digest.update(bytes(1 << 20))
    with pytest.raises(ValueError, match="closed"):
        digest.hexdigest()


def test_no_thread_is_left_of_one_that_ended_in_the_middle() -> None:
    before = threading.active_count()
    with contextlib.suppress(ZeroDivisionError), contextlib.closing(SideDigest()) as digest:
        digest.update(bytes(1 << 20))
        raise ZeroDivisionError
    assert threading.active_count() == before


def test_quiet_work_and_what_it_starts_give_way() -> None:
    own = niceness()
    lowered = max(own, QUIET)
    assert asyncio.run(in_quiet_thread(niceness)) == lowered
    assert asyncio.run(in_quiet_thread(of_a_thread_begun_here)) == lowered
    assert asyncio.run(in_own_thread(niceness)) == own
    assert niceness() == own
