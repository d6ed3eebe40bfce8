"""The README shows what this is and what it runs, and how to install, upgrade and remove it."""

import re

import pytest

from contract_tests.habits.test_sizes import ROOT
from control.policy.catalogue import ENGINES
from menagerie.settings import Settings

PAGE = (ROOT / "README.md").read_text()
SCREEN_LINES = 24


def section(heading: str) -> str:
    found = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None, f"no section {heading!r}"
    return found[1]


def test_a_picture_of_the_product_is_within_the_first_screen() -> None:
    first = "\n".join(PAGE.splitlines()[:SCREEN_LINES])
    pictures = re.findall(r"!\[.+\]\((\S+)\)", first)
    assert pictures
    assert all((ROOT / each).stat().st_size for each in pictures)


def test_the_table_of_engines_has_each_of_the_catalogue_and_what_it_needs() -> None:
    rows = re.findall(r"^\| (.+) \| (.+) \| (.+) \|$", section("Engines"), re.MULTILINE)[1:]
    named = [re.sub(r"\[(.+?)\]\(\S+\)", r"\1", engines).split(", ") for engines, *_ in rows]
    assert sorted(name for names in named for name in names) == sorted(
        engine.name for engine in ENGINES.values()
    )
    assert all(needs.strip() for *_, needs in rows)


def test_docker_runs_what_the_image_serves() -> None:
    image = (ROOT / "Dockerfile").read_text()
    (run,) = re.findall(r"docker run (.*?[^\\])\n", section("In a container"), re.DOTALL)
    published = [int(port) for port in re.findall(r"-p (?:[\d.]+:)?\d+:(\d+)", run)]
    fields = Settings.model_fields
    names = ("port", *(f"gateway_{each}_port" for each in ("https", "postgres", "mysql", "resp")))
    assert published == [fields[name].default for name in names]
    (exposed,) = re.findall(r"^EXPOSE (.+)$", image, re.MULTILINE)
    assert set(map(str, published)) <= set(exposed.split())
    (volume,) = re.findall(r"-v \w+:(\S+)", run)
    assert f"MENAGERIE_HOME={volume}" in image
    # The gateway is reached from where the API is.
    listens = re.findall(r"MENAGERIE_(?:HOST|GATEWAY_LISTEN)=(\S+)", image)
    assert listens == ["0.0.0.0"] * 2


@pytest.mark.parametrize(
    ("heading", "said"),
    [
        ("Quick start", "make serve"),
        ("Use your own domain", "instance_domain = "),
        ("Upgrade", "git pull"),
        ("Remove", "make clean"),
    ],
)
def test_it_says_how(heading: str, said: str) -> None:
    assert said in section(heading)
