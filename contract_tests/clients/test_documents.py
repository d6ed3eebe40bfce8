"""Where the document comes from, and how its schemas are read."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from clients import schemas
from clients.cli.output import Format
from clients.schemas import DocumentError
from clients.source import FRESH_S, SHIPPED, DocumentSource, Shipped
from menagerie import commands, contract


def document(title: str) -> dict[str, Any]:
    return {"info": {"title": title, "version": "1"}, "paths": {}}


class Server:
    """What the server would answer, and the etags it was asked with."""

    def __init__(self) -> None:
        self.asked: list[str | None] = []
        self.document = document("first")

    def __call__(self, etag: str | None) -> tuple[str | None, dict[str, Any] | None]:
        self.asked.append(etag)
        now = json.dumps(self.document)
        return (now, None) if etag == now else (now, self.document)


@pytest.fixture
def source(tmp_path: Path) -> DocumentSource:
    return DocumentSource("http://one", tmp_path / "cache", shipped("shipped"))


def shipped(title: str) -> Shipped:
    return Shipped(title, lambda: document(title))


def title(found: Any) -> str:
    return str(found.raw["info"]["title"])


def test_the_shipped_one_is_used_until_the_server_was_asked(source: DocumentSource) -> None:
    assert title(source.at_hand()) == "shipped"
    assert source.at_hand().version == "1"
    source.current(Server())
    assert title(source.at_hand()) == "first"


def test_a_changed_shipped_document_is_read_again(source: DocumentSource) -> None:
    source.at_hand()
    source.shipped = shipped("shipped anew")
    assert title(source.at_hand()) == "shipped anew"


def test_a_fresh_copy_is_not_asked_for_and_an_old_one_by_its_etag(
    source: DocumentSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server()
    source.current(server)
    source.current(server)
    assert server.asked == [None]
    etag = json.dumps(server.document)
    import time  # noqa: PLC0415  patched here

    now = time.time()
    monkeypatch.setattr("time.time", lambda: now + FRESH_S + 1)
    assert title(source.current(server)) == "first"
    assert server.asked == [None, etag]
    server.document = document("second")
    assert title(source.current(server, even_if_fresh=True)) == "second"


def test_a_server_that_is_away_leaves_the_copy(source: DocumentSource) -> None:
    def away(etag: str | None) -> Any:
        raise OSError("away")

    assert title(source.current(away)) == "shipped"
    source.current(Server())
    assert title(source.current(away, even_if_fresh=True)) == "first"


def test_servers_do_not_share_copies(source: DocumentSource) -> None:
    source.current(Server())
    assert title(DocumentSource("http://two", source.folder, source.shipped).at_hand()) == "shipped"


def test_a_cache_that_is_spoilt_or_unwritable_does_no_harm(source: DocumentSource) -> None:
    source.at_hand()
    (source.folder / "shipped.json").write_text("{")
    assert title(source.at_hand()) == "shipped"
    assert (
        title(DocumentSource("http://one", Path("/dev/null/cache"), source.shipped).at_hand())
        == "shipped"
    )


def test_clients_alone_have_no_document_before_a_server_is_asked(source: DocumentSource) -> None:
    alone = DocumentSource("http://one", source.folder)
    SHIPPED.set(None)
    with pytest.raises(DocumentError, match="none was shipped"):
        alone.at_hand()
    SHIPPED.set(source.shipped)
    assert title(alone.at_hand()) == "shipped"


@pytest.mark.nightly
@pytest.mark.parametrize("form", ["json", "yaml"])
def test_the_whole_document_is_printed_in_one_piece(
    form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    commands.openapi(Format(form))
    printed = capsys.readouterr().out
    assert (json.loads(printed) if form == "json" else yaml.safe_load(printed)) == contract.public()
    assert ".yaml#/" not in printed
    assert "x-standard" not in printed


def test_what_is_shipped_is_what_a_server_serves() -> None:
    document = contract.shipped().read()
    assert document["paths"]["/healthz"]["get"]["responses"]["503"]
    assert contract.shipped().stamp == contract.shipped().stamp
    assert all(str(path.stat().st_size) in contract.shipped().stamp for path in contract.files())


ROOT: dict[str, Any] = {
    "components": {
        "schemas": {
            "Name": {"type": "string", "description": "a name"},
            "Base": {
                "type": "object",
                "properties": {"id": {"type": "string"}},
                "required": ["id"],
            },
            "Loop": {"$ref": "#/components/schemas/Loop"},
        }
    }
}


def test_references_are_followed_and_members_beside_them_win() -> None:
    node = {"$ref": "#/components/schemas/Name", "description": "its name"}
    assert schemas.merge(ROOT, node) == {"type": "string", "description": "its name"}


@pytest.mark.parametrize(
    "reference", ["#/components/schemas/Loop", "#/components/schemas/No", "other.yaml#/x"]
)
def test_references_that_lead_nowhere_are_errors(reference: str) -> None:
    with pytest.raises(DocumentError):
        schemas.merge(ROOT, {"$ref": reference})


def test_parts_are_folded_into_one_level() -> None:
    node = {
        "allOf": [{"$ref": "#/components/schemas/Base"}],
        "properties": {"name": {"type": "string"}},
        "required": ["name"],
    }
    merged = schemas.merge(ROOT, node)
    assert set(merged["properties"]) == {"id", "name"}
    assert set(merged["required"]) == {"id", "name"}


def test_alternatives_lend_what_they_have_and_require_what_all_do() -> None:
    one = {"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a", "b"]}
    two = {"type": "object", "properties": {"a": {}, "c": {}}, "required": ["a"]}
    merged = schemas.merge(ROOT, {"oneOf": [one, two]})
    assert set(merged["properties"]) == {"a", "b", "c"}
    assert merged["required"] == ["a"]


@pytest.mark.parametrize(
    "node",
    [
        {"type": ["integer", "null"]},
        {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        {"oneOf": [{"type": "null"}, {"type": "integer"}]},
    ],
)
def test_null_is_told_apart(node: dict[str, Any]) -> None:
    merged = schemas.merge(ROOT, node)
    assert (schemas.kind(merged), merged["nullable"]) == ("integer", True)


def test_an_enum_with_null_is_an_enum() -> None:
    merged = schemas.merge(ROOT, {"enum": ["a", None]})
    assert (schemas.kind(merged), schemas.choices(merged), merged["nullable"]) == (
        "enum",
        ["a"],
        True,
    )
