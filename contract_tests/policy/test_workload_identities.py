"""Subjects: which may be trusted, and which a pattern takes."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.policy.workload_identities import OWNED, accepts, check_trust

GITHUB, GITLAB = OWNED
OWN = "https://ci.example.com"
PARTS = st.text("ab*/:é", max_size=12)


def as_expression(pattern: str) -> str:
    """What the page says of patterns, in another language."""
    return "[^:]*".join(map(re.escape, pattern.split("*")))


@given(PARTS, st.text("ab/:é", max_size=12))
def test_a_wildcard_is_anything_but_a_colon(pattern: str, subject: str) -> None:
    expected = re.fullmatch(as_expression(pattern), subject, re.DOTALL) is not None
    assert accepts(pattern, subject) == expected


@given(st.lists(st.one_of(st.just("*"), st.text("ab/", max_size=3)), max_size=8), st.data())
def test_what_is_put_in_place_of_wildcards_is_taken(parts: list[str], data: st.DataObject) -> None:
    filled = [data.draw(st.text("ab/*", max_size=4)) if each == "*" else each for each in parts]
    assert accepts("".join(parts), "".join(filled))


@given(st.text(max_size=40))
def test_without_a_wildcard_it_is_the_same_to_the_letter(subject: str) -> None:
    exact = subject.replace("*", "")
    assert accepts(exact, exact)
    assert not accepts(exact, f"{exact}x")
    assert not accepts(f"{exact}x", exact)


@given(st.text("ab*/:", max_size=12), st.text("ab/:", max_size=12))
def test_whatever_is_let_in_is_of_the_owner_that_the_pattern_names(
    pattern: str, subject: str
) -> None:
    """Up to the first slash nothing is left open."""
    pattern, subject = f"repo:{pattern}", f"repo:{subject}"
    if check_trust(GITHUB, pattern, (GITHUB,)) == [] and accepts(pattern, subject):
        assert subject.partition("/")[0] == pattern.partition("/")[0]


def test_many_wildcards_take_no_time() -> None:
    begun = time.monotonic()
    assert not accepts("*a" * 250, "a" * 249 + "b" * 251)
    assert time.monotonic() - begun < 1


@pytest.mark.parametrize(
    ("issuer", "subject"),
    [
        (GITHUB, "repo:acme/shop:ref:refs/heads/main"),
        (GITHUB, "repo:acme/*"),
        (GITHUB, "repo:acme/*:environment:production"),
        (GITHUB, "repository_owner_id:7:ref:refs/heads/*"),
        (GITLAB, "project_path:acme/shop:ref_type:branch:ref:main"),
        (OWN, "system:serviceaccount:default:deploys"),
        (OWN, "organization:acme/*"),
    ],
)
def test_subjects_that_can_be_trusted(issuer: str, subject: str) -> None:
    assert check_trust(issuer, subject, (GITHUB, GITLAB, OWN)) == []


@pytest.mark.parametrize(
    ("issuer", "subject", "keyword"),
    [
        (GITHUB, "repo:*/shop", "wildcard"),
        (GITHUB, "repository_owner:acme*", "wildcard"),
        (GITHUB, "environment:production", "owner"),
        (GITHUB, "Repo:acme/shop", "owner"),
        (GITHUB, "", "owner"),
        (GITLAB, "12345", "owner"),
        (GITLAB, "project_path:*", "wildcard"),
        (OWN, "*", "wildcard"),
        (OWN, "*/x", "wildcard"),
    ],
)
def test_subjects_that_can_be_anybodys(issuer: str, subject: str, keyword: str) -> None:
    (found,) = check_trust(issuer, subject, (GITHUB, GITLAB, OWN))
    assert (found["pointer"], found["keyword"]) == ("/subject", keyword)


def test_a_service_may_trust_no_issuer_at_all() -> None:
    (found,) = check_trust(OWN, "a/b", ())
    assert found["message"] == "this service trusts no issuers; ask its operator for one"
    (found,) = check_trust(OWN, "a/b", (GITHUB, GITLAB))
    assert found["message"].endswith(f"trusts: {GITHUB}, {GITLAB}")
