"""Each engine that a cell may offer is attacked: by a corpus of its own, and written down."""

import re
from collections import Counter

import pytest

from cell.engines import DRIVERS, PACKAGES
from cell.runtime.host import Host
from contract_tests.attacks import statements
from contract_tests.habits.test_sizes import ROOT

AT_LEAST = 60
# What any engine has, whatever it speaks.
COMMON = {"files", "network", "programs", "rights", "settings", "resources"}
CORPORA = {min(statements.engines_of(path)): path for path in statements.paths()}


def test_each_driver_has_a_corpus() -> None:
    host = Host("/nowhere", "none", PACKAGES, confine=False)
    missing = {make(host).engine for make in DRIVERS} - statements.engines()
    assert not missing, "write contract_tests/attacks/corpus/<engine>.toml, or join a family's"


@pytest.mark.parametrize("engine", sorted(CORPORA))
def test_a_corpus_has_enough_of_each_kind_and_nothing_twice(engine: str) -> None:
    tried = [each for by in ("owner", "script") for each in statements.attacks(engine, by)]
    assert len(tried) >= AT_LEAST
    kinds = {attack.kind for attack in tried}
    assert kinds <= set(statements.KINDS)
    # DuckDB has no accounts and no other rights than its owner's.
    assert kinds >= COMMON - ({"rights"} if engine == "duckdb" else set())
    assert {attack.outcome for attack in tried} <= set(statements.OUTCOMES)
    said = Counter((attack.by, attack.steps) for attack in tried)
    assert [each for each, count in said.items() if count > 1] == []


def test_what_is_tried_is_written_down() -> None:
    page = (ROOT / "docs" / "security.md").read_text()
    rows = re.findall(r"^\| (\w+) \| ([\d |]+) \|$", page, re.MULTILINE)
    written = {name: [int(each) for each in counts.split("|")] for name, counts in rows}
    expected = {}
    for engine in CORPORA:
        found = statements.counts(engine)
        expected[engine] = [*(found[kind] for kind in statements.KINDS), found.total()]
    assert written == expected
