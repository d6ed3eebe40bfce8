"""Dashboards and alert rules ask for what real expositions have: names, and labels by which."""

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from contract_tests.api.harness import House
from contract_tests.monitoring.test_monitoring_page import FOLDER, NAMES, expressions
from contract_tests.monitoring.test_operator_metrics import house, port
from storage.instances import readings
from storage.instances.instances import Instance

__all__ = ["house", "port"]

SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}
SELECTED = re.compile(r"(menagerie_[a-z_]+)\{([^}]*)\}")
LABEL = re.compile(r"([a-z_]+)\s*(?:=~|!~|!=|=)")
OF_SCRAPES = {"instance", "job", "le"}
"""Labels that Prometheus adds, or that histograms have."""


def exposed(texts: Iterable[str]) -> dict[str, set[str]]:
    """The labels of samples, by each name that can be asked for."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for text in texts:
        for family in text_string_to_metric_families(text):
            for suffix in SUFFIXES.get(family.type, ("",)):
                found[family.name + suffix].update()
            for sample in family.samples:
                found[sample.name].update(sample.labels)
    return found


@pytest.fixture
def real(house: House, port: int) -> dict[str, set[str]]:
    tenant = house.tenant()
    instance_id = house.instance(tenant)
    with house.database.write() as db:
        told: dict[str, Any] = {"status": "running", "connections": 2, "statements": 3}
        told |= {"memory_bytes": 3, "storage_bytes": 4}
        readings.note(db, db.get_one(Instance, instance_id), told, house.database.now(db))
    plain = {"Accept": "text/plain"}
    of_organization = house.get(f"{tenant.path}/metrics", tenant.key, headers=plain).text
    return exposed([of_organization, httpx.get(f"http://127.0.0.1:{port}/metrics").text])


@pytest.mark.parametrize("file", ["org-dashboard.json", "operator-dashboard.json", "alerts.yml"])
def test_what_is_asked_for_is_exposed(real: dict[str, set[str]], file: str) -> None:
    text = (FOLDER / file).read_text(encoding="utf-8")
    asked = expressions(json.loads(text) if file.endswith("json") else yaml.safe_load(text))
    named = {name for each in asked for name in NAMES.findall(each)}
    assert len(named) >= 5
    assert named - real.keys() == set()
    for each in asked:
        for name, selectors in SELECTED.findall(each):
            # Of what has no sample here its labels are not known.
            if real[name]:
                assert set(LABEL.findall(selectors)) <= real[name] | OF_SCRAPES, each
