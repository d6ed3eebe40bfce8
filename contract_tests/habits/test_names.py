"""One meaning for each name, in the words of the field: the rooms of cells and gateways."""

import ast
import re
from collections import Counter

from contract_tests.habits.test_sizes import FILES, ROOT, names, parsed

ROOMS = {"cell", "gateway", "instance_services"}
# Every room but the tests and tools.
HOUSE = ROOMS | {"clients", "control", "handlers", "menagerie", "pages", "specserver", "storage"}
MODULES = [path for path in FILES if path.relative_to(ROOT).parts[0] in ROOMS]
# Each was a name once, and had to be explained; docs/glossary.md has the terms.
METAPHORS = re.compile(
    "resident|desk|(?:^|_)bell|entrance|(?:^|_)doors?(?:$|_)|errand|in_force|let_go|doubt(?!ed_logins)|taker"
    "|(?:^|_)fronts?(?:$|_)",
    re.IGNORECASE,
)


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


def test_a_module_name_of_many_folders_has_one_meaning() -> None:
    """The glossary says which; beside the packages' own files."""
    places = Counter(path.name for path in FILES if path.relative_to(ROOT).parts[0] in HOUSE)
    many = {name for name, count in places.items() if count > 3 and not name.startswith("__")}
    glossary = (ROOT / "docs" / "glossary.md").read_text().partition("## Module names")[2]
    assert many == set(re.findall(r"^- `(\w+\.py)`: .+", glossary, re.MULTILINE))
