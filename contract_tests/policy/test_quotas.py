"""What a plan allows in all: the last that fits is let in, and a refusal says what would help."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from control.policy.plans import PLANS
from control.policy.quotas import (
    DOMAINS_MAX,
    ORGS_CLOSED_MAX,
    Usage,
    check_closed_orgs,
    check_more_storage,
    check_one_more,
    check_one_more_api_key,
    check_one_more_backup,
    check_one_more_domain,
    check_one_more_org,
    check_one_more_project,
    check_one_more_team,
    check_return,
    orgs_max,
)
from control.policy.sizes import GB, TB
from control.policy.surplus_backups import StoredBackup, surplus_backups
from control.policy.violations import Violation, gigabytes, refuse, wrong
from specserver import Invalid

FREE = PLANS["free"]
NO_LIMIT = PLANS["enterprise"]
MUCH = Usage(instances=10**4, storage_bytes=10**18, gone=10**5, gone_storage_bytes=10**19)


def quota(message: str, pointer: str = "") -> list[Violation]:
    return [Violation(pointer=pointer, keyword="quota", message=message)]


def test_one_more_instance() -> None:
    assert list(check_one_more(FREE, Usage(instances=1))) == []
    assert list(check_one_more(FREE, Usage(instances=2))) == quota(
        "the free plan allows 2 instances and you have 2; delete one or change the plan"
    )


@pytest.mark.parametrize(
    ("gone", "bytes_held", "held"), [(10, 3 * GB, "3 GB"), (4, 10 * GB, "10 GB")]
)
def test_what_is_deleted_is_limited_until_it_is_erased(
    gone: int, bytes_held: int, held: str
) -> None:
    usage = Usage(gone=gone, gone_storage_bytes=bytes_held)
    assert list(check_one_more(FREE, usage)) == quota(
        f"your {gone} deleted instances still hold {held} of storage, 5 times what the free plan"
        " allows; erase one of them (`…/actions/erase`), or wait until their retention is over"
    )
    fewer = Usage(gone=9, gone_storage_bytes=10 * GB - 1)
    assert list(check_one_more(FREE, fewer)) == []


def test_either_quota_alone_limits_what_is_deleted() -> None:
    of_instances = replace(NO_LIMIT, instances_max=1)
    assert list(check_one_more(of_instances, Usage(gone=4, gone_storage_bytes=10**19))) == []
    assert len(list(check_one_more(of_instances, Usage(gone=5)))) == 1
    of_storage = replace(NO_LIMIT, storage_bytes_max=GB)
    assert list(check_one_more(of_storage, Usage(gone=99, gone_storage_bytes=5 * GB - 1))) == []
    assert len(list(check_one_more(of_storage, Usage(gone_storage_bytes=5 * GB)))) == 1


def test_more_storage() -> None:
    usage = Usage(storage_bytes=GB // 2)
    assert list(check_more_storage(GB * 3 // 2, FREE, usage)) == []
    assert list(check_more_storage(GB * 3 // 2 + 1, FREE, usage)) == quota(
        "the free plan allows 2 GB of storage in total and 1.50 GB is left; ask for less, delete"
        " an instance or change the plan",
        "/storage_bytes",
    )


def test_where_there_is_too_much_already_only_more_is_refused() -> None:
    over = Usage(storage_bytes=3 * GB)
    assert list(check_more_storage(0, FREE, over)) == []
    assert list(check_more_storage(-GB, FREE, over)) == []
    (found,) = check_more_storage(1, FREE, over)
    assert "in total and 0 GB is left" in found["message"]


def test_an_instance_that_returns_must_fit() -> None:
    assert check_return(FREE, Usage(instances=2, storage_bytes=2 * GB)) == []
    assert check_return(FREE, Usage(instances=3, storage_bytes=2 * GB + 1)) == [
        *quota(
            "the free plan allows 2 instances, and with this one 3 are live; delete one or change"
            " the plan"
        ),
        *quota(
            "the free plan allows 2 GB of storage in all, and with this instance it would be"
            " 2.00 GB; delete an instance or change the plan"
        ),
    ]


def test_a_plan_without_limits_limits_nothing() -> None:
    assert list(check_one_more(NO_LIMIT, MUCH)) == []
    assert list(check_more_storage(10**18, NO_LIMIT, MUCH)) == []
    assert check_return(NO_LIMIT, MUCH) == []


def test_organizations_of_a_free_plan_are_counted_alone_first() -> None:
    """The narrower limit is told first where both are reached."""
    limits = orgs_max("free", of_any_plan=10, of_free=3)
    assert list(limits.items()) == [("free", 3), (None, 10)]
    assert orgs_max("solo", of_any_plan=10, of_free=3) == {None: 10}


def test_one_more_organization() -> None:
    rest = "; close one with `erase_everything`, or wait until the data of a closed one is erased"
    assert check_one_more_org(2, 3, "free") == []
    assert check_one_more_org(3, 3, "free") == quota(
        f"you can own 3 organizations on the free plan{rest}"
    )
    assert check_one_more_org(11, 10, None) == quota(f"you can own 10 organizations{rest}")


def test_whoever_closes_many_organizations_waits() -> None:
    assert check_closed_orgs(ORGS_CLOSED_MAX - 1) == []
    assert check_closed_orgs(ORGS_CLOSED_MAX) == quota(
        "you closed 20 organizations in the last 30 days; use one of yours, or wait"
    )


def test_one_more_project_team_and_api_key() -> None:
    assert check_one_more_project(FREE, 2) == []
    assert check_one_more_project(FREE, 3) == quota(
        "the free plan allows 3 projects; delete one first"
    )
    assert check_one_more_project(NO_LIMIT, 10**6) == []
    assert check_one_more_team(FREE, 0) == []
    assert check_one_more_team(FREE, 1) == quota(
        "the free plan allows 1 team, Everyone included, and you have 1; change the plan to create"
        " more"
    )
    assert check_one_more_team(replace(FREE, teams_max=2), 3) == quota(
        "the free plan allows 2 teams, Everyone included, and you have 3; change the plan to create"
        " more"
    )
    assert check_one_more_team(NO_LIMIT, 10**6) == []
    assert check_one_more_api_key(FREE, 9) == []
    assert check_one_more_api_key(FREE, 10) == quota(
        "the free plan allows 10 API keys; revoke one first"
    )
    assert check_one_more_api_key(NO_LIMIT, 10**6) == []


def test_a_plan_without_domains_says_which_have_them() -> None:
    message = "custom domains need the solo plan or above; this is the free plan"
    assert check_one_more_domain(FREE, 0) == [
        Violation(pointer="", keyword="plan", message=message)
    ]


def test_an_instance_has_so_many_domains_and_no_more() -> None:
    assert check_one_more_domain(PLANS["solo"], DOMAINS_MAX - 1) == []
    assert check_one_more_domain(PLANS["solo"], DOMAINS_MAX) == quota(
        "an instance can have at most 20 domains; remove one first"
    )


def test_sizes_are_told_in_gigabytes() -> None:
    assert [gigabytes(size) for size in (0, 2 * GB, GB * 3 // 2)] == ["0 GB", "2 GB", "1.50 GB"]


def test_a_refusal_tells_the_first_or_how_many_and_lists_all() -> None:
    found = [wrong("size", "enum", "no such size"), wrong("", "quota", "no more")]
    assert found[0] == {"pointer": "/size", "keyword": "enum", "message": "no such size"}
    assert found[1]["pointer"] == ""
    refuse([])
    for violations, several, detail in (
        (found, None, "no such size"),
        (found, "{} things are wrong", "2 things are wrong"),
        (found[:1], "{} things are wrong", "no such size"),
    ):
        with pytest.raises(Invalid) as raised:
            refuse(violations, several)
        assert raised.value.detail == detail
        assert raised.value.errors == violations


def test_manual_backups_have_a_quota() -> None:
    solo = PLANS["solo"]
    assert check_one_more_backup(solo, 4, 5 * TB - 1) == []
    assert check_one_more_backup(solo, 5, 0) == quota(
        "the solo plan allows 5 manual backups and you have 5; delete one or change the plan"
    )
    assert check_one_more_backup(solo, 4, 5 * TB) == quota(
        "the solo plan allows 5000 GB of backups, and yours take 5000 GB; delete a manual one, keep"
        " automatic ones for fewer days (`backup-settings`), or change the plan"
    )
    assert check_one_more_backup(PLANS["enterprise"], 99, 10**18) == []


def test_every_plan_keeps_five_times_its_storage_in_backups() -> None:
    for plan in PLANS.values():
        storage = plan.storage_bytes_max
        assert plan.backup_bytes_max == (None if storage is None else 5 * storage)


def stored(instance: str, day: int, size_bytes: int, kind: str = "scheduled") -> StoredBackup:
    at = datetime(2026, 11, day, tzinfo=UTC)
    return StoredBackup(f"{instance}{day}", instance, kind, at, size_bytes)


def surplus(*found: StoredBackup, plan: str = "free", needed: tuple[str, ...] = ()) -> list[str]:
    return [each.id for each in surplus_backups(PLANS[plan], found, needed)]


def test_the_oldest_automatic_backups_go_where_all_take_too_much() -> None:
    usual = [stored("a", day, 3 * GB) for day in (4, 1, 2, 3)]
    assert surplus(*usual[1:]) == []
    assert surplus(*usual) == ["a1"]
    assert surplus(*usual, stored("b", 1, 3 * GB)) == ["a1", "a2"]
    assert surplus(*usual, plan="enterprise") == []
    assert surplus(*usual, needed=("a1",)) == ["a2"]
    # What was asked for counts, and stays; so does the newest of each, whatever it takes.
    assert surplus(*usual[1:], stored("a", 5, 2 * GB, "manual")) == ["a1"]
    assert surplus(stored("a", 1, 20 * GB), stored("b", 2, 20 * GB)) == []
    assert surplus(stored("a", 1, 20 * GB, "manual"), stored("a", 2, GB), stored("a", 3, GB)) == [
        "a2"
    ]
    assert surplus(stored("a", 1, 5 * GB), stored("a", 2, 5 * GB)) == []
    assert surplus(stored("a", 1, 5 * GB), stored("a", 2, 5 * GB + 1)) == ["a1"]


def test_with_a_full_backup_goes_what_builds_on_it() -> None:
    full, later = stored("a", 1, 8 * GB), stored("a", 5, 8 * GB)
    first = replace(stored("a", 2, GB), parent_id="a1")
    second = replace(stored("a", 3, GB), parent_id="a2")
    assert surplus(full, first, second, stored("b", 4, GB)) == []
    # The newest ones first, as long as that is too much.
    assert surplus(full, first, second, later) == ["a3", "a2", "a1"]
    assert surplus(full, first, second, replace(later, stored_bytes=GB)) == ["a3"]
    # What stays has all that it builds on.
    assert surplus(full, first, second, later, needed=("a2",)) == ["a3"]
    newest = replace(later, parent_id="a2")
    assert surplus(full, first, second, newest) == ["a3"]
