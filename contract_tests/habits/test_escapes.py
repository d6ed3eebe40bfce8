"""Who looks across organizations does so in storage/, by a constant reason."""

import ast
from pathlib import Path

from contract_tests.habits.test_imports import ROOMS

ROOT = Path(__file__).resolve().parents[2]


def test_reasons_are_given_in_storage_alone() -> None:
    found = [
        (room, node.args[-1])
        for room in ROOMS
        for path in (ROOT / room).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("across")
    ]
    assert found
    for room, reason in found:
        assert room == "storage"
        assert isinstance(reason, ast.Constant)
        assert len(str(reason.value).split()) > 2
