"""The guide, the dashboards and the alert rules name metrics that there are."""

import json
import re
from typing import Any

import pytest
import yaml

from tools import metrics_page

FOLDER = metrics_page.PAGE.with_suffix("")
NAMES = re.compile(r"menagerie_[a-z_]+")
SUFFIXES = ("_bucket", "_sum", "_count")


def known() -> set[str]:
    rows = [*metrics_page.of_organization(), *metrics_page.of_operator()]
    return {name for name, _, _ in rows}


def is_known(name: str) -> bool:
    bases = {name, *(name.removesuffix(each) for each in SUFFIXES)}
    return not bases.isdisjoint(known())


def expressions(told: Any) -> list[str]:
    if isinstance(told, dict):
        own = [told["expr"]] if isinstance(told.get("expr"), str) else []
        return own + [each for value in told.values() for each in expressions(value)]
    return [each for item in told for each in expressions(item)] if isinstance(told, list) else []


def test_the_tables_are_what_the_code_tells() -> None:
    text = metrics_page.PAGE.read_text(encoding="utf-8")
    assert text == metrics_page.written(text), "run `python -m tools.metrics_page`"


@pytest.mark.parametrize("file", ["org-dashboard.json", "operator-dashboard.json", "alerts.yml"])
def test_dashboards_and_rules_name_metrics_that_there_are(file: str) -> None:
    text = (FOLDER / file).read_text(encoding="utf-8")
    found = expressions(json.loads(text) if file.endswith("json") else yaml.safe_load(text))
    assert len(found) >= 9
    named = {name for each in found for name in NAMES.findall(each)}
    assert not {name for name in named if not is_known(name)}


def test_panels_have_places_of_their_own() -> None:
    for file in ("org-dashboard.json", "operator-dashboard.json"):
        board = json.loads((FOLDER / file).read_text(encoding="utf-8"))
        places = {(each["gridPos"]["x"], each["gridPos"]["y"]) for each in board["panels"]}
        assert len(places) == len({each["id"] for each in board["panels"]}) == len(board["panels"])
