"""What changes settings tells the audit log what they were: each operation, or a reason why not."""

import ast
from collections.abc import Iterator

from contract_tests.api.rows import OPERATIONS
from contract_tests.habits.test_sizes import ROOT, parsed
from specserver import Operation

CHANGING = [
    each
    for each in OPERATIONS
    if each.method in ("PATCH", "PUT") and each.document["x-audit"] != "none"
]
WITHOUT = {
    "passkeys.update": "its name is a free text, which the log does not keep",
    "enterprise_sso.replace": "it replaces a document; what held before is in the entry before",
    "queues.permit": "the cell replaces the roles, and does not say what they were",
}


def functions_of(operation: Operation) -> Iterator[ast.FunctionDef]:
    """The handler, and what it calls in its module."""
    noun, verb = operation.id.split(".")
    (module,) = (ROOT / "handlers").glob(f"*/{noun}.py")
    known = {node.name: node for node in parsed(module).body if isinstance(node, ast.FunctionDef)}
    handler = known.get(verb) or known[f"{verb}_"]
    called = {node.id for node in ast.walk(handler) if isinstance(node, ast.Name)}
    yield from (node for name, node in known.items() if name in called | {handler.name})


def tells_changes(operation: Operation) -> bool:
    calls = (
        node
        for function in functions_of(operation)
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "audit"
    )
    return any(word.arg == "changes" for call in calls for word in call.keywords)


def test_each_change_of_settings_is_audited_with_what_they_were() -> None:
    assert len(CHANGING) > 8
    silent = {each.id for each in CHANGING if not tells_changes(each)}
    assert silent == set(WITHOUT), "pass `changes=` to call.audit, or add a reason"
