"""What counts against a quota is decided in one module: handlers count, and call it."""

import ast

from contract_tests.habits.test_sizes import FILES, ROOT, names, parsed

ROOMS = {"control", "handlers", "specserver", "storage"}
DECIDES = "control/policy/quotas.py"
# Each with what it limits that is no quota of a plan or of a user.
OTHERS = {
    "handlers/events/audit.py": "how long one export of the audit log may be",
}


def test_a_quota_is_decided_in_one_module() -> None:
    found = {
        names(path)
        for path in FILES
        if path.relative_to(ROOT).parts[0] in ROOMS
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Constant) and node.value == "quota"
    }
    assert found == {DECIDES, *OTHERS}, f"move the rule to {DECIDES}, and call it with a count"
