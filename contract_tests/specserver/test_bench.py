"""Owns the proof that the benchmark compares like with like, and judges what it measures."""

import pytest

from tools.bench import specserver as bench


def test_every_contender_does_the_same_work_and_every_bar_is_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`run` checks each app's answer before it measures; the figures here mean nothing."""
    for name, count in (("OPERATIONS", 4), ("MANY", 6), ("FEW", 2)):
        monkeypatch.setattr(bench, name, count)
    result = bench.run(rounds=1, requests=3)
    assert set(result["cpu_us"]) >= {bar.of for bar in bench.BARS} | {
        bar.against for bar in bench.BARS
    }
    assert all(cpu_us > 0 for cpu_us in result["cpu_us"].values())
    assert [bar["limit"] for bar in result["bars"]] == [2.5, 0.3, 0.3, 1.1]
    assert result["kept"] == all(bar["ratio"] <= bar["limit"] for bar in result["bars"])
