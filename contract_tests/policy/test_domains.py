"""Which host names an instance may be given; what is refused says what to do."""

import pytest

from control.policy.domains import check_hostname, normal_hostname
from control.policy.violations import Violation

OURS = "db.menagerie.example"
FORM = "the domain is not a valid host name"
WHOLE = "the domain must be a full host name, such as db.example.com"
LONGEST = ".".join(["a" * 63] * 3 + ["b" * 44, "com"])


def test_a_name_is_kept_in_lower_case_without_the_dot_at_its_end() -> None:
    assert normal_hostname("DB.Example.COM.") == "db.example.com"
    assert normal_hostname("db.example.com") == "db.example.com"


@pytest.mark.parametrize(
    "hostname",
    [
        "db.example.com", "a.b", "xn--bcher-kva.example", "1.example", "a-b.example.com", LONGEST,
        # Not below, and numbers but at the end.
        "other" + OURS, "192.0.2.1.example", "0x.example",
    ],
)  # fmt: skip
def test_a_host_name_that_may_be_added(hostname: str) -> None:
    assert check_hostname(hostname, OURS) == []


@pytest.mark.parametrize(
    ("hostname", "message"),
    [
        ("a" + LONGEST, "the domain has 241 characters; at most 240 are allowed"),
        (OURS, f"names under {OURS} are reserved; use a domain of your own"),
        (f"mine.{OURS}", f"names under {OURS} are reserved; use a domain of your own"),
        ("*.example.com", "a wildcard is not a valid domain; add each host separately"),
        (
            "bücher.example",
            "the domain must be in ASCII (Punycode) form, with labels such as xn--…",
        ),
        ("-a.example", FORM), ("a-.example", FORM), ("a..example", FORM), ("a_b.example", FORM),
        ("a b.example", FORM), ("a" * 64 + ".example", FORM), ("", FORM), (".example", FORM),
        ("localhost", WHOLE), ("192.0.2.1", WHOLE), ("example.0x1f", WHOLE), ("example.0x", WHOLE),
    ],
)  # fmt: skip
def test_a_host_name_that_is_refused(hostname: str, message: str) -> None:
    assert len(LONGEST) == 240
    assert check_hostname(hostname, OURS) == [
        Violation(pointer="/hostname", keyword="format", message=message)
    ]
