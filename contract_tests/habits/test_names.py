"""One meaning for each name, in the words of the field: the rooms of cells and gateways."""

import ast
import re
from collections import defaultdict

from contract_tests.habits.test_sizes import FILES, ROOT, names, parsed

ROOMS = {"cell", "gateway", "instance_services"}
MODULES = [path for path in FILES if path.relative_to(ROOT).parts[0] in ROOMS]
# Each was a name once, and had to be explained; docs/glossary.md has the terms.
METAPHORS = re.compile(
    "resident|desk|(?:^|_)bell|entrance|(?:^|_)doors?(?:$|_)|errand|in_force|let_go|doubt(?!ed_logins)|taker"
    "|(?:^|_)fronts?(?:$|_)",
    re.IGNORECASE,
)


def test_a_class_is_the_only_one_of_its_name() -> None:
    found = defaultdict(list)
    for path in MODULES:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(names(path))
    assert not {name: paths for name, paths in found.items() if len(paths) > 1}


def test_nothing_is_named_by_a_metaphor() -> None:
    wrong = set()
    for path in MODULES:
        for node in ast.walk(parsed(path)):
            given = (getattr(node, attribute, None) for attribute in ("id", "attr", "name", "arg"))
            wrong |= {
                f"{names(path)}: {name}"
                for name in given
                if isinstance(name, str) and METAPHORS.search(name)
            }
        if METAPHORS.search(path.stem):
            wrong.add(names(path))
    assert not wrong
