"""A document in several files is read as one, and what leads nowhere is said."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from specserver import App, Document, DocumentInvalid, written

ROOT = """\
openapi: 3.1.0
info: {title: Farm, version: '1'}
paths:
  /goats/{goat_id}:
    $ref: 'openapi/goats.yaml#/paths/~1goats~1{goat_id}'
  /health:
    get: {operationId: health.get, responses: {'200': {description: Well.}}}
webhooks:
  goat.escaped:
    $ref: 'openapi/goats.yaml#/webhooks/goat.escaped'
"""
GOATS = """\
paths:
  /goats/{goat_id}:
    get:
      operationId: goats.get
      parameters:
        - {$ref: '#/components/parameters/GoatId'}
      responses:
        '200':
          description: A goat.
          content: {application/json: {schema: {$ref: '#/components/schemas/Goat'}}}
  /unnamed:
    get: {operationId: goats.unnamed, responses: {'200': {description: Never.}}}
webhooks:
  goat.escaped:
    post: {responses: {'200': {description: Heard.}}}
components:
  parameters:
    GoatId: {name: goat_id, in: path, required: true, schema: {type: integer}}
  schemas:
    Goat:
      properties:
        name: {$ref: 'shared.yaml#/components/schemas/Name'}
        mother: {$ref: '#/components/schemas/Goat'}
"""
SHARED = "components: {schemas: {Name: {type: string, maxLength: 9}}}\n"


@pytest.fixture
def farm(tmp_path: Path) -> Path:
    (tmp_path / "openapi").mkdir()
    (tmp_path / "openapi" / "goats.yaml").write_text(GOATS)
    (tmp_path / "openapi" / "shared.yaml").write_text(SHARED)
    (tmp_path / "openapi.yaml").write_text(ROOT)
    return tmp_path / "openapi.yaml"


def test_files_become_one_document(farm: Path) -> None:
    document = Document.load(farm)
    paths = document.raw["paths"]
    assert list(paths) == ["/goats/{goat_id}", "/health"]
    answer = paths["/goats/{goat_id}"]["get"]["responses"]["200"]
    assert answer["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Goat"}
    goat = document.raw["components"]["schemas"]["Goat"]["properties"]
    assert goat["name"] == {"$ref": "#/components/schemas/Name"}
    assert document.raw["webhooks"]["goat.escaped"]["post"]
    assert set(document.raw["components"]) == {"parameters", "schemas"}


def test_an_app_serves_it(farm: Path) -> None:
    app = App(farm, handlers=_Handlers())
    assert set(app.operations) == {"goats.get", "health.get"}
    followed = app.operations["goats.get"].document["parameters"]
    assert followed[0]["name"] == "goat_id"


class _Handlers:
    def resolve(self, operation: Any) -> Any:
        return SimpleNamespace(function=lambda **_given: None, operation_id=operation.id)


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("openapi.yaml", "openapi/goats.yaml#/webhooks", "openapi/cows.yaml#/webhooks", "no file"),
        ("openapi.yaml", "#/webhooks/goat.escaped", "#/webhooks/goat.found", "does not exist"),
        ("openapi/goats.yaml", "shared.yaml#", "other.yaml#", "in goats.yaml leads to no file"),
        ("openapi/goats.yaml", "schemas/Name", "schemas/Nickname", "does not exist"),
        ("openapi/goats.yaml", "shared.yaml#/components", "#/components", "does not exist"),
        (
            "openapi/goats.yaml",
            "'#/components/schemas/Goat'",
            "'shared.yaml#/components/schemas/Goat'",
            "does not exist",
        ),
        ("openapi/goats.yaml", "    Goat:", "    Name: {}\n    Goat:", "schemas/Name is in"),
        ("openapi/shared.yaml", "components:", "- components:", "does not contain a mapping"),
    ],
)
def test_what_leads_nowhere_is_said(farm: Path, file: str, old: str, new: str, said: str) -> None:
    path = farm.parent / file
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(DocumentInvalid, match=re.escape(said)):
        Document.load(farm, checked=True)


def test_only_true_and_false_are_booleans(tmp_path: Path) -> None:
    """Not what begins so, which the words of an enumeration may."""
    path = tmp_path / "words.yaml"
    path.write_text("words: [true, False, true_positive, falsehood, yes, on, 2026-01-01]\n")
    expected = [True, False, "true_positive", "falsehood", "yes", "on", "2026-01-01"]
    assert written.load(path)["words"] == expected
