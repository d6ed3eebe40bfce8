"""How soon events arrive while one of ten endpoints hangs."""

import time
from collections import Counter

import pytest

from contract_tests.delivery.outbox import Outbox, until
from contract_tests.delivery.receivers import Answering, Receiver

EVENTS = 150
SOUND = 9
EVERY_S = 0.2
P99_S = 1.0


@pytest.mark.nightly
@pytest.mark.exclusive
def test_one_of_ten_that_hangs_delays_no_event_by_a_second(outbox: Outbox) -> None:
    """By p99 over all events of the nine others, from before the commit to the receiver."""
    with Receiver(lambda _: Answering(hangs_s=60)) as hanging, Receiver() as sound:
        outbox.endpoint(hanging.url)
        for _ in range(SOUND):
            outbox.endpoint(sound.url)
        outbox.deliver()
        outbox.publish(1)
        until(lambda: hanging.received and len(sound.received) == SOUND)
        published: dict[str, float] = {}
        for _ in range(EVENTS):
            begun = time.monotonic()
            published |= dict.fromkeys(outbox.publish(1), begun)
            time.sleep(max(0.0, EVERY_S - (time.monotonic() - begun)))
        until(lambda: len(sound.received) == SOUND * (EVENTS + 1))
        arrived = [(one.headers["svc-event-id"], one.at) for one in list(sound.received)]
    assert Counter(name for name, _ in arrived if name in published) == dict.fromkeys(
        published, SOUND
    )
    delays = sorted(at - published[name] for name, at in arrived if name in published)
    p50, p99 = (delays[int(len(delays) * part)] for part in (0.5, 0.99))
    assert p99 < P99_S, f"p50 {p50 * 1e3:.0f} ms, p99 {p99 * 1e3:.0f} ms"
