"""Patterns of kinds of events: what they match, and what is said of those that match nothing."""

import pytest

from contract_tests.api.rows import DOCUMENT
from control.policy.event_patterns import chosen, faults, matches

READY = "instance.ready.v1"
ROTATED = "instance.credentials.rotated.v1"
KINDS = (READY, ROTATED, "backup.failed.v1")


@pytest.mark.parametrize("pattern", ["*", "instance.*", "instance.ready.*", READY])
def test_a_pattern_matches_its_kinds(pattern: str) -> None:
    assert matches(pattern, READY)


def test_a_group_holds_what_is_below_it() -> None:
    assert matches("instance.*", ROTATED)
    assert matches("instance.credentials.*", ROTATED)
    assert not matches("instance.credentials.*", READY)


@pytest.mark.parametrize(
    "pattern",
    [
        *("", ".*", "**", "*.*", "*.v1", "*.ready.v1", "inst*", "instance", "instance."),
        *("instance.ready", "instance.ready.v", "instance.ready.v1.*", "instance.ready.v2"),
        *("instance*", "instance..*", "Instance.*", " instance.*", "instance.* ", "instance.*\n"),
        *("instance.[a-z]*", "instance.?eady.v1", "^instance.*", "instance.%", "i.*", "x" * 99_999),
    ],
)
def test_anything_else_matches_nothing_and_is_refused(pattern: str) -> None:
    assert not any(matches(pattern, kind) for kind in KINDS)
    assert [each.pattern for each in faults([pattern], KINDS)] == [pattern]


def test_each_pattern_that_matches_nothing_is_told_with_what_exists() -> None:
    found = faults(["instance.*", "instance.reedy.v1", "*", "users.*"], KINDS)
    assert [each.index for each in found] == [1, 3]
    assert found[0].message == (
        "'instance.reedy.v1' matches no kind of event; there are instance.* and"
        " instance.credentials.rotated.v1, instance.ready.v1"
    )
    assert found[1].message == (
        "'users.*' matches no kind of event; write a kind such as backup.failed.v1, * for all, or"
        " one of the groups backup.*, instance.*"
    )


def test_what_is_chosen_is_what_any_of_them_matches() -> None:
    assert chosen(["backup.*", READY], KINDS) == {"backup.failed.v1", READY}
    assert chosen([], KINDS) == frozenset()
    assert chosen(["*"], KINDS) == set(KINDS)


def test_every_kind_of_the_document_is_matched_by_itself_and_its_group_alone() -> None:
    kinds = set(DOCUMENT.raw["webhooks"])
    for kind in kinds:
        assert chosen([kind], kinds) == {kind}
        group = kind.partition(".")[0]
        assert kind in chosen([f"{group}.*"], kinds)
        assert all(each.startswith(f"{group}.") for each in chosen([f"{group}.*"], kinds))
