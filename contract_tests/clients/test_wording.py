"""What a command line refuses is said in plain words: what is wrong and what is allowed."""

import pytest

from contract_tests.clients.conftest import Cli
from contract_tests.clients.stand_in import ControlPlane

ORDER = ["instances", "create", "--size", "f0"]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (
            [*ORDER, "--engine", "postgre"],
            "'--engine': 'postgre' is not one of the choices; choose one of postgres, ",
        ),
        ([*ORDER, "--engine", "reddis"], "choose one of redis, "),
        (
            [*ORDER, "--engine", "duckdb", "--placement", "secur"],
            "choose one of secure and shared",
        ),
        (["instances", "list", "-o", "xml"], "'xml' is not one of the choices; choose one of "),
        (["completion", "show", "fis"], "choose one of fish, "),
        (
            ["api-keys", "create", "--name", "ci", "--scopes", "instance:read"],
            "--scopes: 'instance:read' is not one of the choices; choose one of instances:read, ",
        ),
        (["instances", "list", "--limit", "0"], "'--limit': must be at least 1"),
        (["instances", "list", "--limit", "many"], "'--limit': must be a whole number"),
        (["instances", "create", "--wait-timeout", "soon"], "'--wait-timeout': must be a "),
    ],
    ids=lambda value: "" if isinstance(value, str) else " ".join(value[-2:]),
)
def test_what_is_refused_is_said_in_plain_words(
    argv: list[str], said: str, home: object, plane: ControlPlane, cli: Cli
) -> None:
    ran = cli(*argv)
    assert ran.code == 2
    assert said in ran.err
    assert "Value error" not in ran.err
    assert "Input should" not in ran.err
    assert not plane.asked("POST", "/instances")


def test_several_that_may_be_meant_are_listed_as_people_list_them(home: object, cli: Cli) -> None:
    said = cli("instances", "create", "--engin", "duckdb").err
    assert "did you mean --engine, --region or --engine-version?" in said
